"""What a policy is made of: derive from `Policy`, return an action, read the event and the state.

A first policy takes ten minutes: docs/policies.md.
"""

from redrive.audit.verification import is_source_file, is_test_file
from redrive.replay.inference import Inference, Question, inference_key
from redrive.replay.persistent import Log, Table
from redrive.replay.policy import (
    Action,
    Allow,
    Ask,
    Deny,
    Inject,
    Lane,
    Notify,
    Policy,
    Prepare,
    Reducer,
)
from redrive.replay.policy_event import PolicyEvent
from redrive.replay.policy_state import State

__all__ = [
    "Action",
    "Allow",
    "Ask",
    "Deny",
    "Inference",
    "Inject",
    "Lane",
    "Log",
    "Notify",
    "Policy",
    "PolicyEvent",
    "Prepare",
    "Question",
    "Reducer",
    "State",
    "Table",
    "inference_key",
    "is_source_file",
    "is_test_file",
]
