"""Texts, and questions for them in other words: our own, and no word of a question stands in its text."""

__all__ = ["PARAPHRASES"]

PARAPHRASES: tuple[tuple[str, str], ...] = (
    (
        "authentication fails with 401 for every user since the upgrade",
        "where did we discuss sign-in trouble",
    ),
    (
        "the invoice total is wrong when a customer has two discounts",
        "billing calculates an incorrect amount",
    ),
    (
        "memory keeps growing until the worker is killed after a few hours",
        "process leaks RAM and gets OOM-terminated",
    ),
    (
        "we decided to keep the data in Germany because of privacy law",
        "in which country are our servers hosted, and the legal reason",
    ),
    (
        "the nightly backup job has not finished since Tuesday",
        "snapshots of the database stopped completing last week",
    ),
    (
        "please write shorter commit messages, one sentence is enough",
        "preference about git history wording length",
    ),
    ("the page takes nine seconds to load on a phone", "slow website performance on mobile"),
    (
        "rollback of the release was needed because orders were lost",
        "we reverted the deployment after purchases vanished",
    ),
    (
        "our lawyer says the licence of that library forbids commercial use",
        "attorney's opinion on open source terms for business",
    ),
    ("the certificate of the mail server expires on Friday", "SMTP TLS renewal deadline"),
    (
        "customers in Japan see question marks instead of their names",
        "character encoding problem for Asian clients",
    ),
    (
        "the test fails only when two of them run at the same time",
        "flaky race condition in parallel execution",
    ),
    ("Anna will be on holiday until the end of the month", "who is away on vacation"),
    ("the disk of the build machine is full again", "CI host ran out of storage space"),
    (
        "never delete anything in the production bucket without asking me",
        "permission needed before removing live files",
    ),
    ("the button is too small to hit with a thumb", "touch target size usability complaint"),
    ("we pay about four hundred dollars a month for the idle cluster", "cloud cost of unused compute"),
    ("the chart shows yesterday's figures because the cache is never refreshed", "stale dashboard numbers"),
    (
        "two people edited the same document and one of the changes disappeared",
        "concurrent update overwrote someone's work",
    ),
    ("the password reset email arrives after half an hour", "delayed account recovery message"),
    ("a refund takes five working days to reach the card", "how long until money is returned to the buyer"),
    (
        "the flight from Oslo was cancelled and rebooked for Monday",
        "airline changed the traveller's departure",
    ),
    ("the doctor asked for the results of the blood test", "physician wants laboratory findings"),
    ("use tabs in this project, all existing files do", "indentation style convention"),
    ("the search returns nothing for words with accents", "lookup ignores diacritics"),
    ("the phone number of the caller was saved in plain text", "personal contact data stored unencrypted"),
    ("the fan of the server in the basement is very loud", "noisy hardware downstairs"),
    ("we could not reproduce the crash on a Mac", "bug does not occur with Apple laptops"),
    ("the contract with the supplier ends in March and must be extended", "vendor agreement renewal date"),
    (
        "sorting a million rows takes most of the time",
        "profiler says ordering large tables is the bottleneck",
    ),
    (
        "the children's menu lists nuts although the kitchen has none",
        "allergen information for kids' food is mistaken",
    ),
    (
        "the boss wants a weekly report about open tickets",
        "manager requested regular summary of unresolved issues",
    ),
    (
        "rename the function because its name says the opposite of what it does",
        "misleading identifier should be changed",
    ),
    ("the camera on the loading dock sees nothing at night", "video surveillance fails in darkness"),
    (
        "connections to the queue are dropped when nothing is sent for a minute",
        "idle timeout disconnects the message broker",
    ),
    ("the translation into French is missing three sentences", "incomplete localisation"),
    ("the user was charged twice for one subscription", "duplicate payment of membership fee"),
    (
        "the sensor in the greenhouse reports minus forty degrees",
        "implausible temperature reading among the plants",
    ),
    ("we agreed to meet at nine instead of ten from now on", "new time of the daily standup appointment"),
    (
        "requests are refused once there are more than a hundred per second",
        "rate limiting threshold of the API",
    ),
)
