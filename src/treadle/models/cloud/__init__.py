"""Access to models through the accounts of clouds: Bedrock, Vertex, and Azure with Entra.

    aws, google, azure    which credentials there are, by the clouds' own variables and files
    sigv4, service_key    signatures;  tokens: tokens with an end, and programs that print one
    transport             a Transport with the address and the authorization of a cloud

No SDK is needed. Nothing here is imported before a model of a cloud is named.
"""
