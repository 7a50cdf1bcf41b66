"""The transaction coordinator: transactional ids, their producers and their open transactions."""
