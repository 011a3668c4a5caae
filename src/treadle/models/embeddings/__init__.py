"""Vectors of texts, under one small contract (contract.py).

    embedder(name)                      create.py: a name, as for models
    HTTPEmbedder                        OpenAI's, Gemini's and Voyage's interface: dialects.py
    LocalEmbedder                       the embedded engine: no key, no network, no cost

The addresses, keys, clouds, prices and errors are those of the models.
"""
