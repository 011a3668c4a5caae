"""HTTP: request bytes to a server and response bytes back. Knows nothing about models.

    transport       the Protocol of a transport, and its errors
    client          the default transport: pool, connection, connect, urls, local_hosts, timeouts
    sdk_transport   a client of the anthropic or openai package as a transport
    sse             server-sent events; aws_eventstream converts Bedrock's frames to them

Used by provider_base/http_model.py. Import the module you need: this package imports none.
"""
