"""A session as hosts see it: `HostedSession` and its parts."""
