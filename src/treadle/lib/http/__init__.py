"""HTTP: request bytes to a server and response bytes back. No JSON, no retries.

    transport        the Protocol of a transport, and its errors
    client           pool, connection, connect, urls, local_hosts, timeouts are its parts
    sse              server-sent events
    tls_context, content_decoder   certificates of the environment, gzip and deflate bodies

Everything that sends a request uses it. Import the module you need: this package imports none.
"""
