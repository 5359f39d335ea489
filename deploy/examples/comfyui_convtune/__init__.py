"""convtune for ComfyUI; prestartup_script.py does it all. Copy or link this folder into ComfyUI/custom_nodes."""

NODE_CLASS_MAPPINGS: dict[str, type] = {}  # ComfyUI refuses a custom node without it
