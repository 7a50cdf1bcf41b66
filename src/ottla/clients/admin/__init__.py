"""The admin client: topics, configs, groups, cluster."""
