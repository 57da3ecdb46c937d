"""What a conversation weighs, what a window holds, and what a request costs. Pure and offline."""
