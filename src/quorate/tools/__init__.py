"""The console scripts. Each has a module of its name, and `scripts` has the entry points.

    scripts           the entry points, and the module of each
    times             times in options and outputs
    command_line      ToolError, the parser of options, and what turns errors into exit statuses
    confirmation      asks whether a plan is to be performed
    server_start      kafka-server-start
    server_stop       kafka-server-stop
    storage           kafka-storage
    standalone_check  its check that `--standalone` creates no second quorum
    quorate           quorate
    up                quorate up
    shell_completion  its completion of all tools for bash and zsh
    topic_history     quorate-topic-history
    client/           options and admin client of the tools that talk to a running cluster
    cluster/          kafka-cluster, kafka-acls, kafka-broker-api-versions, kafka-configs, kafka-features,
                      kafka-log-dirs
    topics/           kafka-topics, kafka-get-offsets, kafka-delete-records, kafka-leader-election
    reassign/         kafka-reassign-partitions
    groups/           kafka-consumer-groups
    quorum/           kafka-metadata-quorum
    operations/       the operations of quorate: decommission, rolling-restart, ...
    shell/            kafka-metadata-shell
    changes/          quorate metadata log
    console/          kafka-console-consumer, kafka-console-producer
    dump/             kafka-dump-log
    doctor/           quorate doctor
    plan/             quorate plan
    lake/             quorate-pipeline

Only `quorate.testing` and tests import this package. A tool imports what takes long to import through
`quorate.lazy`, so that `--help` and short commands start quickly.
"""
