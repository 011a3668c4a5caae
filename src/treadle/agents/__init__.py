"""Who is put together: an agent of a model, tools and rules, and the doors to its loop."""
