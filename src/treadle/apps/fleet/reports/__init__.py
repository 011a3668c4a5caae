"""What users see of the runs: the report as a value, text and page; the live table; sessions."""
