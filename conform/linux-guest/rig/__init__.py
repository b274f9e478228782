"""The host side of the Linux guest rig; see ../README.md."""
