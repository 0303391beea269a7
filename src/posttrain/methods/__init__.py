"""Published methods: one function ``Recipe -> Recipe`` per file, in a folder per area."""
