"""How a plane is deployed and watched: files for other programs, and what makes some of them."""
