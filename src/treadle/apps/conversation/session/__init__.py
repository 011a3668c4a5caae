"""A session as hosts see it: `OpenSession` and its parts."""
