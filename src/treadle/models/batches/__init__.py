"""Batch interfaces of providers: requests that may wait for hours, at half the price.

    Batched                             a model whose calls go into batches
    BatchQueue                          collects requests, submits them, waits for results
    AnthropicBatches · OpenAIBatches    the two interfaces, over the HTTP models
    BatchStore · BatchFolder            what was submitted

A batch is recorded before it is submitted, and a request is known by the reply that it asks for: a
process that dies between submission and result is continued by the next one, which finds the batch.
"""
