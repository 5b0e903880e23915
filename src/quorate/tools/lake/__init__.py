"""quorate-pipeline: keeps the tables of a lake up to date, and asks them questions.

pipeline       the commands
questions      those that ask a question
upkeep         compact, expire, migrate
generate       generate
doctor         checks what the pipeline needs from the machine
report/        answers to all questions as a page
topics         quorate-pipeline topics
topic_options  its options
options        options that several commands have
lake_session   a Spark session for a command
output         prints rows as a table or as JSON
progress       shows how far Spark is
"""
