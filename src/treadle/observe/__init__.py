"""WHAT IS TOLD: observers that write events down, add them up or hand them on; and plots.

    jsonlines   every event and item as a line of JSON     totals   what a run used, by model
    telemetry   spans for OpenTelemetry                    plots    bars in a terminal

Below stands the Observer contract of the core; above, the hosts.
"""
