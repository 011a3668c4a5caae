"""Evals: cases that an agent answers, checks of the answers, and reports that can be compared.

    case      a prompt and the checks of its answer       judge    a model that checks an answer
    evaluate  runs cases with an agent                    report   the outcome; report_page as HTML
    recorded_tools  tools that answer as in a recorded session

Uses the agents and, for its page, apps/pages. Programs use it as `treadle.evals`.
"""
