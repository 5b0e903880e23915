"""Transcripts: scenarios of the Raft core as text files with commands, and with what the quorum then does.

session    the commands, and `replay`, which runs the commands of a transcript
narration  a simulated quorum that describes in sentences what happens

Tests import `session`.
"""
