"""A real third-party server in a process of its own: xllamacpp with SmolLM2, on loopback.

It speaks OpenAI chat, OpenAI Responses and Anthropic Messages. Prints its address once it
listens, and ends when its standard input does.
"""

import os
import sys

# SmolLM2's own template drops tools without a word. This one shows it two calls instead, which
# is enough for a model of its size to make a third.
TEMPLATE = """
{%- if tools %}
{%- for a, b in [(1, 7), (6, 5)] %}
{{- '<|im_start|>user\nadd ' ~ a ~ ' and ' ~ b ~ '<|im_end|>\n<|im_start|>assistant\n' }}
{{- '<tool_call>\n{"name": "add", "arguments": {"a": ' ~ a ~ ', "b": ' ~ b ~ '}}\n' }}
{{- '</tool_call><|im_end|>\n' }}
{%- endfor %}
{%- for tool in tools %}{{- '<!-- ' + tool.function.name + ' -->' }}{%- endfor %}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.content %}{{- message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""


def main(weights: str, port: int) -> None:
    import xllamacpp  # type: ignore[import-untyped]

    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.port = port
    params.n_ctx = 4096
    params.n_parallel = 4  # each keeps the prompt that it read last
    params.warmup = False
    params.verbosity = -1
    params.cpuparams.n_threads = 1  # two wait for each other on a machine that is busy
    params.sampling.temp = 0
    params.sampling.seed = 1
    params.chat_template = TEMPLATE
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # its threads have nothing to finish


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
