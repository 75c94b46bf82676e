"""Commands that delete what clusters, clouds, containers, databases and machines hold.

Knows subcommands and options as tables. Must not know files, git or SQL.

Source: the programs' own manuals.
"""

from collections.abc import Iterator, Mapping

import msgspec

from redrive.policies.shell_command import Command, Options, read_options
from redrive.policies.shell_danger import Danger, Severity, make_danger
from redrive.policies.shell_output import EVERY_CONTAINER
from redrive.policies.shell_paths import is_scratch
from redrive.policies.shell_words import is_known

_DENY, _ASK = Severity.DENY, Severity.ASK


class Rule(msgspec.Struct, frozen=True):
    """Fires where the operands begin with `path` and one option of `needs` (if any) is there.

    A word of `path` may be several, parted by `|`.
    """

    rule: str
    path: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    severity: Severity = _DENY


def _rule(rule: str, path: str = "", needs: str = "", severity: Severity = _DENY) -> Rule:
    return Rule(rule, tuple(path.split()), tuple(needs.split()), severity)


_MKFS_VALUES = tuple(f"-{letter}" for letter in "tLNimOEUTbCGJ")
_NO_RUN = frozenset({"--dry-run", "--dryrun", "--help", "--version"})
# Options that take a value, so that it is not read as a subcommand.
_VALUES: Mapping[str, tuple[str, ...]] = {
    "kubectl": (
        *("-n", "--namespace", "--context", "--kubeconfig", "--cluster", "--user", "-l"),
        *("--selector", "-f", "--filename", "-k", "--kustomize", "-o", "--grace-period"),
        "--replicas",
    ),
    "helm": ("-n", "--namespace", "--kube-context", "--kubeconfig"),
    "aws": ("--profile", "--region", "--output", "--endpoint-url", "--query"),
    "bq": ("--project_id", "--dataset_id", "--location"),
    "gcloud": ("--project", "--account", "--configuration", "--format", "--zone", "--region"),
    "az": ("-g", "--resource-group", "-n", "--name", "--subscription", "-o", "--output"),
    "docker": ("-H", "-c", "--context", "--host", "-f", "--file", "-p", "--project-name"),
    "rails": ("-e",),
    "alembic": ("-c", "--config", "-x", "-n", "--name"),
    "redis-cli": ("-h", "-p", "-a", "-n", "-u", "--user", "--pass"),
    "prisma": ("--schema",),
    "kill": ("-s", "-n"),
}
_COMPOSE = (
    _rule("container_data_loss", "down", "-v --volumes"),
    _rule("container_data_loss", "rm", "-v", _ASK),
)
_TERRAFORM = (
    _rule("cloud_delete", "destroy"),
    _rule("cloud_delete", "apply", "-destroy --destroy"),
    _rule("cloud_delete", "run-all destroy"),
    _rule("cloud_delete", "state rm", "", _ASK),
    _rule("cloud_delete", "workspace delete", "", _ASK),
)
_DB_TASKS = tuple(
    _rule("database_reset", task)
    for task in (
        *("db:drop", "db:drop:all", "db:reset", "db:purge", "db:schema:load", "db:migrate:reset"),
        *("db:structure:load", "db:truncate_all"),
    )
)
_DJANGO = (
    _rule("database_reset", "flush"),
    _rule("database_reset", "reset_db"),
    _rule("database_reset", "sqlflush", "--never"),
)
_DESTROYS = (
    _rule("cloud_delete", "destroy"),
    _rule("cloud_delete", "delete"),
    _rule("cloud_delete", "remove|rm"),
)
_DOCKER = (
    _rule("container_data_loss", "system prune", "-a --all --volumes"),
    _rule("container_data_loss", "system prune", "", _ASK),
    _rule("container_data_loss", "volume rm|remove|prune"),
    _rule("container_data_loss", "container|image|network|builder prune", "-a --all", _ASK),
    _rule("container_data_loss", "compose down", "-v --volumes"),
    _rule("container_data_loss", "compose rm", "-v", _ASK),
    _rule("cluster_delete", "stack|service rm", "", _ASK),
)
_PRISMA = (
    _rule("database_reset", "migrate reset"),
    _rule("database_reset", "db push", "--force-reset --accept-data-loss"),
)
_PACKAGE_RUNNER = (
    _rule("package_unpublish", "unpublish"),
    _rule("database_reset", "run|run-script db:reset|db:drop|db:wipe|migrate:reset", "", _ASK),
    _rule("database_reset", "db:reset|db:drop|db:wipe|migrate:reset", "", _ASK),
    _rule("database_reset", "prisma migrate reset"),
    _rule("database_reset", "prisma db push", "--force-reset --accept-data-loss"),
)
_MIGRATIONS: Mapping[str, tuple[Rule, ...]] = {
    **dict.fromkeys(("rails", "rake"), _DB_TASKS),
    "prisma": _PRISMA,
    **dict.fromkeys(("manage.py", "django-admin"), _DJANGO),
    "alembic": (_rule("database_reset", "downgrade base"),),
    "flask": (_rule("database_reset", "db downgrade base"),),
    "knex": (_rule("database_reset", "migrate:rollback", "--all"),),
    **dict.fromkeys(
        ("sequelize", "sequelize-cli"),
        (
            _rule("database_reset", "db:drop"),
            _rule("database_reset", "db:migrate:undo:all"),
        ),
    ),
    "artisan": tuple(
        _rule("database_reset", task)
        for task in ("migrate:fresh", "migrate:reset", "migrate:refresh", "db:wipe")
    ),
    "typeorm": (_rule("database_reset", "schema:drop"),),
    "supabase": (
        _rule("database_reset", "db reset"),
        _rule("cloud_delete", "projects delete"),
        _rule("cloud_delete", "functions delete", "", _ASK),
    ),
    "dbmate": (_rule("database_reset", "drop"),),
    "flyway": (_rule("database_reset", "clean"),),
    "liquibase": (
        _rule("database_reset", "dropAll"),
        _rule("database_reset", "drop-all"),
    ),
    "mix": (
        _rule("database_reset", "ecto.drop"),
        _rule("database_reset", "ecto.reset"),
    ),
    "sqlx": (
        _rule("database_reset", "database drop"),
        _rule("database_reset", "database reset"),
    ),
    "diesel": (_rule("database_reset", "database reset"),),
    "dropdb": (_rule("database_reset"),),
    "mysqladmin": (_rule("database_reset", "drop"),),
    "pg_restore": (_rule("database_reset", "", "-c --clean", _ASK),),
    "redis-cli": (
        _rule("database_reset", "FLUSHALL|flushall|FlushAll"),
        _rule("database_reset", "FLUSHDB|flushdb|FlushDB"),
    ),
}
_CLOUDS: Mapping[str, tuple[Rule, ...]] = {
    **dict.fromkeys(("terraform", "tofu", "terragrunt"), _TERRAFORM),
    **dict.fromkeys(("pulumi", "cdk", "cdktf"), (_rule("cloud_delete", "destroy"),)),
    **dict.fromkeys(("serverless", "sls"), (_rule("cloud_delete", "remove"),)),
    **dict.fromkeys(("sam", "eksctl", "copilot"), (_rule("cloud_delete", "delete"),)),
    "gsutil": (
        _rule("cloud_delete", "rm", "-r -R"),
        _rule("cloud_delete", "rb"),
    ),
    "heroku": (
        _rule("cloud_delete", "apps:destroy|apps:delete"),
        _rule("database_reset", "pg:reset"),
        _rule("cloud_delete", "addons:destroy"),
    ),
    **dict.fromkeys(("flyctl", "fly"), (*_DESTROYS, _rule("cloud_delete", "apps|volumes destroy"))),
    **dict.fromkeys(("vercel", "railway", "wrangler"), _DESTROYS),
    "netlify": (_rule("cloud_delete", "sites:delete"),),
    "firebase": (
        _rule("cloud_delete", "firestore:delete"),
        _rule("cloud_delete", "database:remove"),
        _rule("cloud_delete", "hosting:disable", "", _ASK),
    ),
    "rclone": (_rule("cloud_delete", "purge|delete"),),
    "mc": (
        _rule("cloud_delete", "rm", "-r --recursive"),
        _rule("cloud_delete", "rb", "--force"),
    ),
    "bq": (
        _rule("cloud_delete", "rm", "-r --recursive"),
        _rule("cloud_delete", "rm", "-f --force", _ASK),
    ),
    "vault": (
        _rule("store_delete", "kv destroy", "", _ASK),
        _rule("store_delete", "kv metadata delete", "", _ASK),
    ),
    **dict.fromkeys(("kafka-topics", "kafka-topics.sh"), (_rule("store_delete", "", "--delete"),)),
    "helm": (_rule("cluster_delete", "uninstall|delete|del|un"),),
    **dict.fromkeys(("kind", "minikube", "k3d"), (_rule("cluster_delete", "delete", "", _ASK),)),
    **dict.fromkeys(("docker", "podman", "nerdctl"), _DOCKER),
    "docker-compose": _COMPOSE,
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), _PACKAGE_RUNNER),
    **dict.fromkeys(("cargo", "gem"), (_rule("package_unpublish", "yank", "", _ASK),)),
    "gh": (
        _rule("repository_delete", "repo delete"),
        _rule("repository_delete", "release|secret|issue delete", "", _ASK),
    ),
    "glab": (_rule("repository_delete", "repo delete"),),
}
_MACHINE: Mapping[str, tuple[Rule, ...]] = {
    **dict.fromkeys(("reboot", "halt", "poweroff"), (_rule("system_stop"),)),
    "systemctl": (_rule("system_stop", "poweroff|reboot|halt|kexec"),),
    "init": (_rule("system_stop", "0|6"),),
    "crontab": (_rule("account_loss", "", "-r"),),
    **dict.fromkeys(("userdel", "deluser"), (_rule("account_loss"),)),
    **dict.fromkeys(
        ("iptables", "ip6tables"), (_rule("firewall_flush", "", "-F --flush -X", _ASK),)
    ),
    "nft": (_rule("firewall_flush", "flush ruleset", "", _ASK),),
    "ufw": (_rule("firewall_flush", "disable|reset", "", _ASK),),
    "wipefs": (_rule("disk_overwrite", "", "-a --all"),),
    "blkdiscard": (_rule("disk_overwrite"),),
    "sgdisk": (_rule("disk_overwrite", "", "-Z -o --zap-all --clear"),),
    "cryptsetup": (_rule("disk_overwrite", "luksFormat|erase"),),
    "diskutil": (_rule("disk_overwrite", "eraseDisk|eraseVolume|zeroDisk|partitionDisk"),),
    **dict.fromkeys(("lvremove", "vgremove", "pvremove"), (_rule("disk_overwrite"),)),
    **dict.fromkeys(("zpool", "zfs"), (_rule("disk_overwrite", "destroy"),)),
    **dict.fromkeys(("mkswap",), (_rule("disk_overwrite"),)),
}
_TABLE: Mapping[str, tuple[Rule, ...]] = {**_MIGRATIONS, **_CLOUDS, **_MACHINE}
_KUBERNETES_BROAD = frozenset(
    {
        *("ns", "namespace", "namespaces", "all", "pv", "persistentvolume", "persistentvolumes"),
        *("pvc", "persistentvolumeclaim", "persistentvolumeclaims", "crd", "crds", "node", "nodes"),
        *("customresourcedefinition", "customresourcedefinitions", "statefulset", "statefulsets"),
        *("sts", "secret", "secrets"),
    }
)
# Services of which each deletion is a loss of data or of running systems.
_AWS_GRAVE = frozenset(
    {
        *("rds", "dynamodb", "s3api", "s3", "ec2", "cloudformation", "eks", "ecs", "efs", "kms"),
        *("redshift", "docdb", "neptune", "elasticache", "backup", "route53", "iam", "es"),
        *("organizations", "opensearch", "lambda", "glacier", "secretsmanager", "ecr"),
    }
)
_AWS_VERBS = ("delete-", "batch-delete-", "terminate-", "purge-", "schedule-key-deletion")


def judge_service(command: Command, root: str | None) -> Iterator[Danger]:
    """Judge a command by the tables; programs with rules of their own are judged beside."""
    del root
    name = command.program
    if name.startswith("mkfs"):
        yield from _make_filesystem(command)
        return
    words = command.words[1:]
    if name in {"python", "python3", "php"} and words and words[0].endswith(_SCRIPTS):
        name, words = words[0].rpartition("/")[2], words[1:]
    options = read_options(words, _VALUES.get(name, _VALUES.get(_LIKE.get(name, ""), ())))
    if any(_runs_nothing(word) for word in words):
        return
    if ("RAILS_ENV", "test") in command.assigned or ("MIX_ENV", "test") in command.assigned:
        return
    special = _SPECIAL.get(name)
    if special is not None:
        yield from special(command, options)
    for rule in _TABLE.get(name, ()):
        if _fits(rule, options, words):
            target = " ".join(options.operands[len(rule.path) :])
            yield make_danger(rule.rule, command, target, severity=rule.severity)
            return


def _make_filesystem(command: Command) -> Iterator[Danger]:
    """Judge `mkfs`: a disk is lost; a plain file is an image that somebody made for it."""
    options = read_options(command.words[1:], _MKFS_VALUES)
    targets = options.operands or command.words[-1:]
    grave = [target for target in targets if target.startswith("/dev/") or not is_known(target)]
    if grave:
        yield make_danger("disk_overwrite", command, grave[0])
    elif not is_scratch(targets[0], folder=command.cwd):
        yield make_danger("disk_overwrite", command, targets[0], severity=_ASK)


def _runs_nothing(word: str) -> bool:
    name, _, value = word.partition("=")
    return name in _NO_RUN and value not in {"none", "false"}


def _fits(rule: Rule, options: Options, words: tuple[str, ...]) -> bool:
    if len(options.operands) < len(rule.path):
        return False
    pairs = zip(rule.path, options.operands, strict=False)
    if not all(operand in step.split("|") for step, operand in pairs):
        return False
    return not rule.needs or options.has(*rule.needs) or any(w in rule.needs for w in words)


def _kubernetes(command: Command, options: Options) -> Iterator[Danger]:
    if options.operands[:1] != ("delete",):
        if options.operands[:1] == ("drain",):
            yield make_danger("cluster_delete", command, severity=_ASK)
        elif options.operands[:1] == ("scale",) and "0" in options.values("--replicas"):
            target = " ".join(options.operands[1:])
            yield make_danger("cluster_stop", command, target, severity=_ASK)
        return
    kinds = {kind.partition("/")[0] for word in options.operands[1:2] for kind in word.split(",")}
    is_wide = options.has("-f", "--filename", "-k", "--kustomize", "--all", "-A")
    severity = _DENY if is_wide or kinds & _KUBERNETES_BROAD else _ASK
    target = " ".join(options.operands[1:]) or "".join(options.values("-f", "-k", "--filename"))
    yield make_danger("cluster_delete", command, target, severity=severity)


def _aws(command: Command, options: Options) -> Iterator[Danger]:
    service, action = (*options.operands, "", "")[:2]
    target = " ".join(options.operands[2:])
    if "help" in options.operands:
        return
    if service == "s3":
        if (action == "rm" and options.has("--recursive")) or action == "rb":
            yield make_danger("cloud_delete", command, target)
        elif action == "sync" and options.has("--delete"):
            yield make_danger("cloud_delete", command, target, severity=_ASK)
    elif action.startswith(_AWS_VERBS):
        severity = _DENY if service in _AWS_GRAVE else _ASK
        yield make_danger("cloud_delete", command, target, severity=severity)


def _verbs(command: Command, options: Options) -> Iterator[Danger]:
    """Judge clouds whose commands end in a verb, such as `gcloud compute instances delete`."""
    operands = options.operands
    for number, word in enumerate(operands):
        if word in {"delete", "purge"} and number > 0:
            target = " ".join(operands[number + 1 :])
            yield make_danger("cloud_delete", command, target)
            return
    if operands[:2] == ("storage", "rm") and options.has("-r", "-R", "--recursive"):
        yield make_danger("cloud_delete", command, " ".join(operands[2:]))


def _kill(command: Command, options: Options) -> Iterator[Danger]:
    del options
    words = command.words[1:]
    if len(words) > 1 and words[-1] == "-1" and words[-2] != "-s":
        yield make_danger("system_stop", command, "-1")


def _mongo(command: Command, options: Options) -> Iterator[Danger]:
    texts = [*options.values("--eval"), command.stdin.text or ""]
    for text in texts:
        joined = "".join(text.split())
        if any(f".{call}" in joined for call in _MONGO_CALLS):
            yield make_danger("database_reset", command, text.strip())
            return


def _shutdown(command: Command, options: Options) -> Iterator[Danger]:
    """Judge `shutdown`; `-c` cancels one, `-k` only warns."""
    if not options.has("-c", "-k", "--show"):
        yield make_danger("system_stop", command)


def _etcd(command: Command, options: Options) -> Iterator[Danger]:
    """Judge `etcdctl del`: of all keys, or of all below one."""
    keys = options.operands[1:]
    is_range = options.has("--prefix", "--from-key")
    if options.operands[:1] != ("del",) or not (is_range or len(keys) > 1):
        return
    severity = _DENY if keys[:1] in {("",), ("/",)} else _ASK
    yield make_danger("store_delete", command, keys[0] if keys else "", severity=severity)


def _docker(command: Command, options: Options) -> Iterator[Danger]:
    """Judge `docker rm`: with its volumes, or of every container there is."""
    del options
    words = read_options(command.words[1:], ("-H", "-c", "--context", "--host"))
    operands = words.operands[1:] if words.operands[:1] == ("container",) else words.operands
    if operands[:1] not in {("rm",), ("remove",)}:
        return
    is_forced = words.has("-f", "--force")
    if words.has("-v", "--volumes") or (is_forced and EVERY_CONTAINER in operands):
        target = " ".join(operands[1:])
        yield make_danger("container_data_loss", command, target, severity=_ASK)


_MONGO_CALLS = ("dropDatabase()", "drop()", "deleteMany({})", "remove({})", "dropCollection(")
_SCRIPTS = ("manage.py", "artisan")
_LIKE = {"oc": "kubectl", "podman": "docker", "nerdctl": "docker", "docker-compose": "docker"}
_VALUES_MONGO = ("--eval", "--host", "--port", "-u", "-p", "--username", "--password")
_VALUES = {**_VALUES, **dict.fromkeys(("mongosh", "mongo"), _VALUES_MONGO)}
_SPECIAL = {
    **dict.fromkeys(("kubectl", "oc"), _kubernetes),
    "aws": _aws,
    **dict.fromkeys(("gcloud", "az", "doctl", "hcloud", "linode-cli"), _verbs),
    "kill": _kill,
    "shutdown": _shutdown,
    "etcdctl": _etcd,
    **dict.fromkeys(("docker", "podman", "nerdctl"), _docker),
    **dict.fromkeys(("mongosh", "mongo"), _mongo),
}
