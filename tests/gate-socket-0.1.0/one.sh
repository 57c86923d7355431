read -r input
printf '{"got":%s}' "$input"
