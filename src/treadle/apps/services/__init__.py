"""What the hosts share beside the agent: costs, attachments, settings writer, crash report."""
