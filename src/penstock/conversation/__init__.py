"""What a conversation is: messages and their parts, dialects, rules, identity, documents."""
