"""The wire: bytes to a provider and bytes back, and nothing about models.

`transport` is the seam (one Protocol and its errors), `client` the default behind it, `adapters`
other people's clients behind it, `sse` the event reader. The provider codecs stand above;
below are sockets. Import the module you need: this package imports none of them.
"""
