"""A dry run: what is recorded instead of done (dry_run/), and how it is carried out later."""
