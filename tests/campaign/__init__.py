"""Simulations, faults on real processes and mixed clusters, one after the other, and one report.

stages    what a campaign runs, and how much of the time each stage gets
runner    runs the stages as processes and follows their output
report    the report as Markdown and JSON
__main__  the command `python -m tests.campaign`, which `make campaign` runs
"""
