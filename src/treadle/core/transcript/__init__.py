"""Values of a conversation, the next move of the loop, and the laws of a valid history."""

from treadle.core.transcript.content import (
    Arguments,
    AssistantContent,
    Document,
    Image,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    UserContent,
)
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    Metadata,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
    UserItem,
    to_user_item,
)
from treadle.core.transcript.pending import (
    AskModel,
    Rest,
    RunTools,
    last_reply,
    pending,
)
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage

__all__ = [
    "Arguments",
    "AskModel",
    "AssistantContent",
    "AssistantItem",
    "Document",
    "Image",
    "Item",
    "Metadata",
    "NoticeItem",
    "Opaque",
    "RedactedThinking",
    "Rest",
    "RunTools",
    "SummaryItem",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolResultItem",
    "Transcript",
    "Usage",
    "UserContent",
    "UserItem",
    "last_reply",
    "pending",
    "to_user_item",
]
