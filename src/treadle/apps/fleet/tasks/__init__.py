"""Where tasks come from: files of several forms, and schedules."""
