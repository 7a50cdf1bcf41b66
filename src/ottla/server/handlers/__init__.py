"""One function an API: authorise, call a core, shape the answer. Decisions stay in cores."""
