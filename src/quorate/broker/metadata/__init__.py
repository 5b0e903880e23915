"""The metadata that a broker has published, and the responses and settings that are read from it.

    publisher           follows the metadata log and publishes images and deltas
    cache               the latest image, and responses read from it
    encoded_responses   encoded Metadata responses
    frame_answers       encoded Metadata responses by the bytes of their requests
    config_view         configurations with their sources

The other packages of the broker may import all of them.
"""
