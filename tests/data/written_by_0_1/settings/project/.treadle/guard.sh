cat >> guarded.jsonl
