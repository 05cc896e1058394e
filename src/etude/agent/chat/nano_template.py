"""The laptop model's chat format as a Hugging Face chat template, for programs that don't have `NanoRenderer`.

It writes what `NanoRenderer.render` does, as text. As every such template it takes text that spells a marker for the marker; the renderer does not.
"""

from __future__ import annotations

from etude.agent.chat import special


def nano_template() -> str:
    """The Jinja source. It refuses thinking, unknown roles and tools, and arguments that are no texts."""
    tools = ", ".join(f"'{name}': {list(parameters)}" for name, parameters in special.TOOL_PARAMETERS.items())
    return _SOURCE.replace("@TOOLS@", "{" + tools + "}")


# The words of the markers are those of `special`: a test renders every role and every tool both ways.
_SOURCE = """\
{%- set parameters = @TOOLS@ -%}
{%- macro written(content) -%}
{%- if content is string -%}{{ content }}
{%- elif content is iterable -%}{%- for part in content if part.type == 'text' -%}{{ part.text }}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
{%- if message.role not in ['system', 'user', 'assistant', 'tool'] -%}
{{ raise_exception('the role ' ~ message.role ~ ' is not one of system, user, assistant, tool') }}
{%- endif -%}
{%- if message.reasoning_content -%}{{ raise_exception('this chat format has no place for thinking') }}{%- endif -%}
{%- set text = written(message.content) -%}
{%- if message.role != 'system' or text -%}
{{ '<|' ~ message.role ~ '|>' }}{{ '<|summary|>' if message.summary }}{{ text }}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function or call -%}
{%- if function.name not in parameters -%}{{ raise_exception('there is no tool ' ~ function.name) }}{%- endif -%}
{%- if function.arguments is not mapping -%}{{ raise_exception('arguments of a call must be an object') }}{%- endif -%}
{{ '<|' ~ function.name ~ '|>' }}
{%- for name in parameters[function.name] -%}
{%- if function.arguments[name] is not string -%}
{{ raise_exception(function.name ~ '.' ~ name ~ ' must be a text') }}
{%- endif -%}
{{ '' if loop.first else '<|arg|>' }}{{ function.arguments[name] }}
{%- endfor -%}
{%- endfor -%}
{{ '<|end|>' }}
{%- endif -%}
{%- endfor -%}
{{ '<|assistant|>' if add_generation_prompt }}"""
