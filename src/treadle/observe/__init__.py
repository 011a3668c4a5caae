"""Observers that write, count or forward events; and bar charts.

    jsonlines   every event and item as a line of JSON     totals      usage of a run, by model
    telemetry   spans for OpenTelemetry                    bar_chart   bars in a terminal

Uses the Observer contract of the core. Used by the hosts.
"""
