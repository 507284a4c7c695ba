#!/bin/sh
# Start the query service from environment variables; exec, so that signals reach the server.
#   DPCVX_DATA, DPCVX_SCHEMA, DPCVX_EPSILON, DPCVX_LEDGER  needed
#   DPCVX_ACCOUNT, DPCVX_WITNESS, DPCVX_PERSON, DPCVX_HOST, DPCVX_PORT, DPCVX_SLOT  may be given
#   DPCVX_LEDGER_PASSWORD_FILE  file with the password of a PostgreSQL ledger
set -eu
for name in DATA SCHEMA EPSILON LEDGER; do
  eval "value=\${DPCVX_$name:-}"
  [ -n "$value" ] || { echo "dpcvx-entrypoint: set DPCVX_$name" >&2; exit 2; }
done
if [ -n "${DPCVX_LEDGER_PASSWORD_FILE:-}" ]; then
  PGPASSWORD=$(cat "$DPCVX_LEDGER_PASSWORD_FILE")
  export PGPASSWORD
fi
set -- serve "$DPCVX_DATA" --schema "$DPCVX_SCHEMA" --epsilon "$DPCVX_EPSILON" --ledger "$DPCVX_LEDGER" \
  --host "${DPCVX_HOST:-0.0.0.0}" --port "${DPCVX_PORT:-8000}" --log json "$@"
[ -z "${DPCVX_ACCOUNT:-}" ] || set -- "$@" --account "$DPCVX_ACCOUNT"
[ -z "${DPCVX_WITNESS:-}" ] || set -- "$@" --witness "$DPCVX_WITNESS"
[ -z "${DPCVX_PERSON:-}" ] || set -- "$@" --person "$DPCVX_PERSON"
[ -z "${DPCVX_SLOT:-}" ] || set -- "$@" --slot "$DPCVX_SLOT"
exec "${DPCVX_COMMAND:-dpcvx}" "$@"
