"""What it can do: functions as tools, and where tools come from."""
