"""A text area that handles its keys in the order in which they were typed.

Textual's text area inserts a letter at once, but a key with a binding, such as backspace, travels
up to the app first. Of keys that arrive together, over a slow line or in a busy moment, the letters
would come before the backspace that was typed before them.
"""

from __future__ import annotations

from textual import events
from textual.widgets import TextArea


class OrderedTextArea(TextArea):
    async def _on_key(self, event: events.Key) -> None:
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return
        await super()._on_key(event)
