"""What the interactive hosts share: a conversation with its view and its questions, and the Host
below it. Knows nothing about terminals and pages."""
