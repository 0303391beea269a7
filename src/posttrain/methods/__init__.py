"""Published methods and settings, one function ``Recipe -> Recipe`` a file."""
