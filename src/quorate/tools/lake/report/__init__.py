"""`quorate-pipeline report`: what happened in a cluster, as one HTML page without references to other files.

command     the command
collect     asks the questions of all sections
partitions  the sections about topics and partitions
nodes       those about brokers and controllers
changes     those about who changed what
asking      what the sections share
contents    figures, sections and tables
plots       pictures as SVG, with Matplotlib
page        the HTML page
page.css    its style
"""
