"""From a protocol to stored results: plan, identity, runner, events, driver, store."""
