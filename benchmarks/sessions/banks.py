"""The words and line templates that generated sessions are made of. All of them are our own."""


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def lines(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines() if line.strip())


NOUNS = words("""
    account address agent alert archive artifact asset audit balance batch billing bucket budget cache calendar carrier
    cart catalog channel claim cluster column contract counter coupon credit currency cursor customer dashboard deadline
    delivery device digest discount domain draft endpoint entity envelope event export factor feature feed fence field
    filter folder forecast frame gateway grant group handler header history index invoice item journal kernel label
    ledger lease license limit listing lock mailbox manifest margin market matrix member message meter mirror module
    monitor node notice offer order outlet package page parcel partner patch payment period permit phase pipeline plan
    pointer policy pool port portal prefix price probe profile project proof quota quote range rate ratio reader
    receipt record refund region registry relay render reply report request reserve result retry review role rollout
    route rule sample schedule schema scope segment sensor session shard shelf shipment signal slot snapshot source
    stage stock stream summary supplier switch table tariff task tenant ticket timer token topic trace track transfer
    trigger update upload usage vault vendor version view voucher wallet warehouse weight widget window worker zone
""")
VERBS = words("""
    accept add allocate apply assign attach build cancel check claim clear close collect compare compute confirm convert
    copy count create decode defer delete detect dispatch drain drop emit encode enqueue expand expire export fetch
    filter find flush format freeze gather group import insert join list load lock map mark match measure merge migrate
    move normalise notify open order parse pick plan prepare probe publish pull purge push queue read rebuild record
    reduce refresh register reject release reload remove render replay report reserve reset resolve restore resume
    retry revoke route sample save scan schedule score seal search select send settle shift sign sort split stage start
    stop store submit sync track transfer trim unlock update validate verify watch write
""")
BODY = sorted(
    lines("""
{var} = self._{var2}.{fn}({var3}, limit={num})
{var} = {fn}({var2}, {var3})
if {var} is None:
if not {var}.{noun}_{noun2} or {var}.{noun2} > {num}:
for {noun} in {var}.{fn}({const}):
with self._{noun}_lock:
return {cls}({var}={var2}, {noun}={var3}.{noun2})
return {var}
return None
self.{noun} = {var}
{var} = {fn}({noun})
if {var}:
if {noun}.{var}:
{noun} = {num}
break
self._{noun}.{verb}()
{var}.{verb}({noun})
raise {cls}Error(f"{noun} {{{var}}} is not a {noun2} of {{self.{noun}_id}}")
log.debug("{verb} {noun} %s after %d {noun2}s", {var}, {num})
self.{var}[{noun}_id] = {fn}({var2}.{noun2})
{var}.append(({noun}_id, {var2}.{noun2}, {num}))
{var} = {{{noun}.{noun2}_id: {noun} for {noun} in {var2} if {noun}.{var3}}}
assert {var}.{noun} == {num}, "{noun} and {noun2} disagree"
# The {noun} may be missing while a {noun2} is being moved, so look at the {noun3} first.
{var}, {var2} = await self._{noun}.{fn}({const}, timeout={num})
try:
except {cls}Error:
continue
total_{noun} += {var}.{noun2}_count * {num}
{const} = {num}
yield {noun}, {var}.{fn}()
if {var}.kind in ("{noun}", "{noun2}", "{verb}_{noun3}"):
self._metrics.{verb}("{noun}_{noun2}_total", {noun3}={var}.{noun3})
"""),
    key=len,
)
OTHER = {
    "ts": lines("""
export async function {camel}({noun}: {cls}, {noun2}Id: string): Promise<{cls}> {{
  const {var} = await this.{camel}({noun}.{noun2}Id, {{ limit: {num} }});
  if (!{var}.{camel}) return null;
  return {{ ...{noun}, {camel}: {var}.{noun2}, updatedAt: {big} }};
  {camel}: z.string().min({num}).describe("{noun} of the {noun2}"),
import {{ {camel}, {cls} }} from "../{noun}/{noun2}-{noun3}";
  expect({camel}({noun}, {num})).toEqual({{ {noun2}: "{slug}", {noun3}: {big} }});
}}
"""),
    "yaml": lines("""
{noun}_{noun2}:
  {noun}: {slug}
  {noun}_{noun2}_seconds: {num}
  - name: {slug}
    image: registry.internal.example/{slug}:{version}
    port: {port}
    {noun}: "{noun2} {noun3}"
  # {verb} the {noun} before the {noun2} is up
"""),
    "md": lines("""
## How to {verb} a {noun}
The {noun} service keeps every {noun2} for {num} days; after that the {noun3} job removes it from `{path}`.
- `{fn}` wants a {noun} and gives back its {noun2}, or nothing when the {noun3} is closed
| `{const}` | {num} | how many {noun}s a {noun2} may hold |
Run `make {verb}-{noun}` on port {port} and wait until the {noun2} answers.
"""),
}
LOG = lines("""
{stamp} INFO  {module} {verb} {noun}={slug} took={num}ms {noun2}_id={hex}
{stamp} DEBUG {module} {fn} {var}={num} {noun}={hex}
{stamp} WARN  {module} {noun} {noun2} is slow: {big}ms, limit {num}ms, request={hex}
{stamp} ERROR {module} cannot {verb} {noun} {slug}: {cls}Error at {path}:{num}
{stamp} INFO  access {ip} "GET /api/{noun}s/{hex}/{noun2} HTTP/1.1" 200 {big}
""")
TESTS = lines("""
{test_path}::test_{fn}_{noun} PASSED
{test_path}::Test{cls}::test_{verb}s_{noun}_{noun2} PASSED
{test_path}::test_{noun}_without_{noun2} PASSED
""")
PYTEST = """\
============================= test session starts ==============================
platform linux -- Python 3.12.4, pytest-8.3.2, pluggy-1.5.0
rootdir: /srv/project
configfile: pyproject.toml

"""
TRACE = lines("""
  File "{path}", line {num}, in {fn}
    {var} = {fn}({var2}, {noun}={num})
  File "{path}", line {num}, in _{verb}_{noun}
    raise {cls}Error("{noun} {slug} has no {noun2}")
""")
GREP = lines("""
{path}:{num}:    {var} = {fn}({var2}, {noun}={num})
{path}:{num}:def {fn}({noun}: {cls}) -> {cls}:
{path}:{num}:from {module} import {cls}, {fn}
{path}:{num}:{const} = {big}
""")
GIT = lines("""
{sha} {cls}: {verb} the {noun} before the {noun2}
{sha} {verb} {noun}s by {noun2} (#{big})
 {path} | {num} ++++---
+    {var} = {fn}({noun}, {var2})
-    return {fn}({var}.{noun2})
@@ -{num},7 +{num},9 @@ def {fn}({noun}):
""")
LISTING = lines("""
-rw-r--r--  1 dev dev {big} {path}
{path}
""")
BUILD = lines("""
[{num}/240] compiling {path}
{path}:{num}:{num}: warning: `{fn}` is never awaited in `{cls}`
   Fetched {slug} v{version} ({big} bytes)
""")
SAY = lines("""
`{fn}` in `{path}` looks like the place: it takes the {noun} without looking at its {noun2}.
The {noun} is still wrong after that, so the cause must be earlier, probably where `{fact}` is set.
Now I check how `{fact}` is used by the {noun2} code.
That explains the {noun}: `{fact}` is read before the {noun2} has been written.
Tests for the {noun} pass. Next is `{fact}`.
Two callers of `{fn}` remain, and one of them relies on `{fact}`.
I keep the change small: only `{path}` and its test.
Good, `{fact}` is what the {noun} needs. Let me put it in.
The {noun2} has its own copy of that rule, so I look there before I change anything.
""")
ASK = lines("""
The {noun} page shows an old {noun2} after a {noun3} was changed. Please find out why and fix it.
Next, make `{fact}` configurable. The default has to stay as it is, and do not rename anything public.
Why does the {noun} job need two minutes? Measure first, then tell me, and only change it when I say so.
Looks good. Now the same for the {noun2}. Never write to the {noun3} table from there, it must go through `{fn}`.
The build is red on my side: something about `{fact}`. Can you look? Use port {port}, the other one is taken.
Please add tests for the {noun} without a {noun2}; only in tests/{noun3}, and always with the fixture we have.
continue
Yes, go on. Keep {noun} ids as they are in the ticket: {hex}.
""")
POLICY = (
    "You serve the customers of a shop that also books journeys. Look a customer up before you speak of an order. "
    "Before anything is changed, list what will be done and wait for a clear yes. An order that is pending can be "
    "cancelled or changed once; a delivered one can be returned or exchanged within 30 days, for items of the same "
    "product. Refunds go to the payment method of the order or to a gift card. Fares of the basic class cannot be "
    "changed, only cancelled within a day. Never make up a price: use what the tools say. One call at a time."
)
