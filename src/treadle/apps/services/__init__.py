"""What the hosts share beyond building an agent: attachments, costs, undo, reports."""
