"""Finds the session folders of agents that are installed on this machine."""

from pathlib import Path

from redrive import plugins


def discovered_folders(home: Path | None = None) -> list[Path]:
    """List the existing session folders that the importers know of, each once.

    Args:
        home: whose home folder to look in; the user's own if absent.
    """
    base = home if home is not None else Path.home()
    folders: dict[Path, None] = {}
    for importer in plugins.load_all(plugins.IMPORTERS).values():
        roots = getattr(importer, "discover_roots", None)
        if roots is not None:
            folders |= {folder: None for folder in roots(base) if folder.is_dir()}
    return list(folders)
