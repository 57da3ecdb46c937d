"""The fifth list: yet other kinds, wordings and makes of passwords, written before its first run.

The templates are those of `blind_secrets`; docs/adr/0003-redaction.md has the figures of the first run.
"""

import random

from tests.strategies.blind_secrets import BlindSecret, fill_template

__all__ = ["make_final_look_alikes", "make_final_secrets"]


def make_final_secrets(seed: int) -> list[BlindSecret]:
    """Returns 154 texts of 40 kinds."""
    rng = random.Random(seed)
    return [
        BlindSecret(kind, *fill_template(template, rng))
        for kind, templates in _SECRETS.items()
        for template in templates
    ]


def make_final_look_alikes(seed: int) -> list[str]:
    """Returns 80 texts without a secret."""
    rng = random.Random(seed)
    return [fill_template(template, rng)[0] for template in _LOOK_ALIKES]


_SECRETS: dict[str, tuple[str, ...]] = {
    "env of frameworks": (
        "NEXTAUTH_SECRET=⟦b64:43⟧=",
        "APP_KEY=base64:⟦b64:43⟧=",
        'DATABASE_URL="postgresql://shop:⟦marked⟧@db:5432/shop?schema=public"',
        "SUPABASE_SERVICE_ROLE_KEY=eyJhbGciOiJIUzI1NiJ9.eyJyb2xlIjoi⟦url:30⟧.⟦url:43⟧",
    ),
    "rails and django": (
        "SECRET_KEY = 'django-insecure-⟦strong⟧⟦strong⟧'",
        "production:\n  adapter: postgresql\n  username: shop\n  password: ⟦camel⟧\n",
        'EMAIL_HOST_PASSWORD = "⟦marked⟧"',
    ),
    "spring yaml": (
        "spring:\n  mail:\n    username: bot\n    password: ⟦front⟧\n",
        "jwt:\n  secret: ⟦b64:64⟧\n",
        "client-secret: ⟦url:36⟧",
    ),
    "appsettings": (
        '"ConnectionStrings": {"Main": "Host=db;Username=app;Password=⟦marked⟧;Database=crm"}',
        '"Smtp": { "User": "bot", "Password": "⟦camel⟧" }',
        '"InstrumentationKey": "x", "StorageAccountKey": "⟦b64:86⟧=="',
    ),
    "helm values": (
        "grafana:\n  adminUser: admin\n  adminPassword: ⟦front⟧\n",
        '  postgresPassword: "⟦drawn⟧"',
        "imagePullSecret:\n  registry: r.example.com\n  password: ⟦alnum:30⟧",
    ),
    "kubernetes output": (
        "$ kubectl get secret db -o jsonpath='{.data.password}' | base64 -d\n⟦marked⟧\n",
        "stringData:\n  username: app\n  password: ⟦camel⟧\n",
        "    token: ⟦url:64⟧\n    user: ci",
    ),
    "github actions": (
        "      - uses: appleboy/ssh-action@v1\n        with:\n          password: ⟦marked⟧",
        "gh secret set NPM_TOKEN --body npm_⟦alnum:36⟧",
        'echo "TOKEN=⟦alnum:40⟧" >> $GITHUB_ENV',
    ),
    "gitlab and jenkins": (
        'curl --header "JOB-TOKEN: ⟦alnum:26⟧" https://gitlab.example.com/api/v4/projects',
        "credentialsId: 'x', password: '⟦front⟧'",
        "git remote set-url origin https://maria:⟦alnum:20⟧@git.example.com/a.git",
    ),
    "ssh and sftp": (
        "plink -ssh ops@10.0.0.3 -pw ⟦marked⟧",
        "sftp> open ops@10.0.0.3\nPassword: ⟦camel⟧",
        "rsync --password-file=<(echo ⟦marked⟧) a b::m",
    ),
    "databases": (
        'psql "host=db user=app password=⟦marked⟧ dbname=x"',
        "sqlcmd -S db -U sa -P ⟦camel⟧ -Q 'select 1'",
        "mysqldump --user=root --password=⟦front⟧ shop > d.sql",
        "mongodump --uri='mongodb://m:⟦drawn⟧@h/db'",
        "influx setup -u admin -p ⟦marked⟧ -t ⟦alnum:40⟧ -f",
    ),
    "sql again": (
        "CREATE ROLE app LOGIN PASSWORD '⟦marked⟧';",
        "GRANT ALL ON *.* TO 'a'@'%' IDENTIFIED BY '⟦camel⟧';",
        "SET PASSWORD FOR 'root'@'localhost' = PASSWORD('⟦front⟧');",
        "ALTER SYSTEM SET primary_conninfo = 'user=rep password=⟦drawn⟧';",
    ),
    "openssl and keystores": (
        "keytool -genkey -alias a -storepass ⟦camel⟧ -keypass ⟦camel⟧",
        "openssl pkcs12 -export -passout pass:⟦marked⟧ -in c.pem",
        "jarsigner -storepass ⟦front⟧ app.jar upload",
    ),
    "queues": (
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="⟦marked⟧";',
        "rabbitmqctl add_user app ⟦camel⟧",
        "mosquitto_pub -h mq -u sensor -P ⟦marked⟧ -t a -m b",
    ),
    "python third": (
        "boto3.client('s3', aws_access_key_id='AKIA⟪upper:16⟫', aws_secret_access_key='⟦b64:40⟧')",
        "r = requests.post(url, json={'email': 'm@example.com', 'password': '⟦camel⟧'})",
        "TOKEN: Final = '⟦alnum:36⟧'",
        "imap.login(user, '⟦marked⟧')",
        'jwt.encode(payload, "⟦alnum:32⟧", algorithm="HS256")',
    ),
    "javascript third": (
        "axios.get(u, { headers: { 'x-api-key': '⟦alnum:32⟧' } })",
        "nodemailer.createTransport({ auth: { user: 'm', pass: '⟦marked⟧' } })",
        'export const SUPER_SECRET = "⟦camel⟧"',
        "const { data } = await supabase.auth.signInWithPassword({ email: 'm@example.com', password: '⟦front⟧' })",
    ),
    "jvm third": (
        'val apiKey: String = "⟦alnum:40⟧"',
        'config.setPassword("⟦marked⟧");',
        'Algorithm.HMAC256("⟦alnum:32⟧")',
        'DB.default.password="⟦camel⟧"',
    ),
    "elixir, perl, r": (
        'config :shop, Shop.Repo, username: "app", password: "⟦marked⟧"',
        "my $dbh = DBI->connect($dsn, 'app', '⟦camel⟧');",
        "con <- dbConnect(RPostgres::Postgres(), user = 'a', password = '⟦front⟧')",
        'secret_key_base: "⟦b64:64⟧"',
    ),
    "dart, scala, vb": (
        "final String token = '⟦alnum:36⟧';",
        'val pwd = "⟦marked⟧"',
        'conn.ConnectionString = "Provider=SQLOLEDB;User ID=sa;Password=⟦camel⟧;"',
    ),
    "embedded": (
        'const char* password = "⟦camel⟧";',
        "wifi:\n  ssid: home\n  password: ⟦marked⟧\nota:\n  password: ⟦front⟧",
        "nmcli dev wifi connect home password ⟦camel⟧",
        "WIFI:S:home;T:WPA;P:⟦camel⟧;;",
    ),
    "headers third": (
        "X-Goog-Api-Key: ⟦url:39⟧",
        'Authorization: Digest username="m", realm="r", response="⟦hex:32⟧"',
        "api-key: ⟦hex:32⟧",
        "Authorization: Bot ⟦url:24⟧.⟦url:6⟧.⟦url:38⟧",
    ),
    "cookies third": (
        "Cookie: _gh_sess=⟦url:64⟧; logged_in=yes",
        "set-cookie: auth_token=⟦hex:40⟧; Secure",
        '{"name": "session", "value": "⟦url:44⟧", "domain": ".example.com"}',
    ),
    "oauth": (
        "client_id=web&client_secret=⟦url:40⟧&code=⟦url:44⟧&grant_type=authorization_code",
        "https://app.example.com/callback?code=⟦url:44⟧&state=x",
        '"id_token": "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOi⟦url:40⟧.⟦url:86⟧"',
        "refresh token = ⟦url:60⟧",
    ),
    "signed addresses": (
        "https://b.s3.amazonaws.com/k?X-Amz-Credential=AKIA⟪upper:16⟫&X-Amz-Signature=⟦hex:64⟧",
        "https://storage.googleapis.com/b/k?GoogleAccessId=x&Signature=⟦url:86⟧",
        "https://example.com/unsubscribe?auth=⟦url:43⟧",
        "https://example.com/password/edit?reset_password_token=⟦url:24⟧",
    ),
    "logs third": (
        "DEBUG Request headers: {'Authorization': 'Bearer ⟦alnum:40⟧'}",
        '[auth] invalid password "⟦marked⟧" for user maria',
        "login failed for maria with password ⟦camel⟧",
        "Your new API token: ⟦alnum:40⟧ (shown once)",
        "Jupyter: http://localhost:8888/?token=⟦hex:48⟧",
    ),
    "installers": (
        "*** Please record the admin password: ⟦drawn⟧ ***",
        "Superuser created. Login: admin Password: ⟦marked⟧",
        "elastic user password reset. New value: ⟦alnum:20⟧",
        "Unseal Key 1: ⟦b64:44⟧\nInitial Root Token: hvs.⟦url:24⟧",
    ),
    "notes third": (
        "NAS - user maria - password ⟦camel⟧",
        "test account: maria@example.com / ⟦marked⟧",
        "(login: demo, pass: ⟦front⟧)",
        "PW=⟦marked⟧ for the zip",
    ),
    "english third": (
        "The passphrase for the backup disk is ⟦passphrase⟧.",
        "Please log me in, my username is maria and my password is ⟦camel⟧",
        "it accepts ⟦marked⟧ as password now",
        "I changed the password from ⟦camel⟧ to ⟦marked⟧ yesterday",
        "here's the token you asked for: ⟦alnum:40⟧",
    ),
    "german": (
        "Mein Passwort lautet ⟦camel⟧, bitte nicht weitergeben.",
        "WLAN-Schlüssel: ⟦digits:16⟧",
        "Zugang: maria / ⟦marked⟧",
    ),
    "romance": (
        "Mot de passe : ⟦marked⟧",
        "Usuario: maria Contraseña: ⟦camel⟧",
        "minha senha é ⟦front⟧",
        "la password è ⟦marked⟧",
    ),
    "slavic and nordic": (
        "логин maria, пароль ⟦camel⟧",
        "Hasło: ⟦marked⟧",
        "heslo je ⟦camel⟧",
        "passordet er ⟦marked⟧",
        "salasana on ⟦camel⟧",
    ),
    "asian": (
        "用户名：maria 密码：⟦camel⟧",
        "密碼是⟦marked⟧",
        "パスワード: ⟦front⟧",
        "비밀번호는 ⟦camel⟧ 입니다",
        "mật khẩu là ⟦marked⟧",
    ),
    "tables third": (
        "| env | url | username | password |\n|---|---|---|---|\n| qa | q.example.com | m | ⟦camel⟧ |\n| prod | p.example.com | m | ⟦marked⟧ |",
        "host\tuser\tpassword\ndb1\tapp\t⟦front⟧\n",
        "+------+----------+\n| user | password |\n+------+----------+\n| m    | ⟦marked⟧ |\n+------+----------+",
        "url,username,password\nhttps://a.example.com,m,⟦camel⟧\n",
    ),
    "markup": (
        '<input type="password" name="pw" value="⟦camel⟧">',
        '<entry key="password">⟦marked⟧</entry>',
        "**Password:** `⟦front⟧`",
        '<meta name="csrf-token" content="⟦b64:86⟧">',
    ),
    "tokens third": (
        "glsa_⟦alnum:32⟧_⟦hex:8⟧",
        "dp.pt.⟦alnum:43⟧",
        "ntn_⟦digits:11⟧⟦alnum:35⟧",
        "secret_⟦alnum:43⟧",
        "sq0csp-⟦url:43⟧",
        "sbp_⟦hex:40⟧",
    ),
    "tokens fourth": (
        "xai-⟦alnum:80⟧",
        "pplx-⟦alnum:48⟧",
        "AKCp⟦alnum:69⟧",
        "eyJrIjoi⟦alnum:60⟧",
        "acme_live_⟦alnum:32⟧",
        "v1.0-⟦hex:24⟧-⟦hex:64⟧ is the origin ca key",
    ),
    "keys third": (
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\n⟦pem⟧\n-----END ENCRYPTED PRIVATE KEY-----",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n⟦pem⟧\n-----END PGP PRIVATE KEY BLOCK-----",
        '{"kty":"oct","k":"⟦url:43⟧"}',
        '{"kty":"EC","crv":"P-256","x":"a","d":"⟦url:43⟧"}',
    ),
    "encryption": (
        "ENCRYPTION_KEY=⟦hex:64⟧",
        "restic -r /b --password-command 'echo ⟦marked⟧' backup",
        "cryptsetup: passphrase ⟦passphrase⟧ accepted",
        "aes_iv_key = bytes.fromhex('⟦hex:64⟧')",
    ),
    "codes": (
        "Dein Bestätigungscode lautet ⟦digits:6⟧",
        "G-⟦digits:6⟧ is your Google verification code",
        "PIN: ⟦digits:4⟧",
    ),
    "wallets third": (
        "12-word seed: ⟦mnemonic⟧",
        "const mnemonic = '⟦mnemonic⟧';",
        "private key (hex) ⟦hex:64⟧",
    ),
    "licences third": (
        "Serial number: ⟦upper:4⟧-⟦upper:4⟧-⟦upper:4⟧-⟦upper:4⟧",
        "slmgr /ipk ⟦upper:5⟧-⟦upper:5⟧-⟦upper:5⟧-⟦upper:5⟧-⟦upper:5⟧",
        "license_key: ⟦hex:32⟧",
    ),
}

_LOOK_ALIKES: tuple[str, ...] = (
    "Successfully built ⟪hex:12⟫",
    "Pulled image@sha256:⟪hex:64⟫",
    '"_id": ObjectId("⟪hex:24⟫")',
    "uuid4 ⟪hex:8⟫-⟪hex:4⟫-4⟪hex:3⟫-b⟪hex:3⟫-⟪hex:12⟫ used as primary key",
    "cherry-pick ⟪hex:40⟫: fix password reset mail",
    "Subresource: sha384-⟪b64:64⟫",
    "password hash: sha256 with 100000 rounds",
    "The password policy was updated in v2.14.0",
    "Passwords are hashed with argon2id (t=3, m=65536, p=4)",
    "password input has id=pw-field-2 and class=form-control-lg",
    "step 3: enter your password and click Login",
    "Enter password for user 'maria': ",
    "Password for maria@10.0.0.4: ",
    "maria@web-02's password: ",
    "sudo: a password is required",
    'error: password authentication failed for user "app_2024"',
    'FATAL: password authentication failed for user "replica01" at 10:42:11',
    "Wrong password (attempt 2/5)",
    "passwords[0].length > 12",
    "user.password2 = form.password2.data",
    "form.add_field('password1', widget=PasswordInput)",
    "password1 = forms.CharField(max_length=128)",
    "def test_login_with_wrong_password_returns_401(client):",
    "it('rejects password shorter than 8 chars', async () => {",
    "expect(screen.getByLabelText('Password')).toBeInTheDocument()",
    "type Token struct { Kind int; Lit string }",
    "Token(type='NUMBER', value='42', lineno=3)",
    "token_ids = [101, 2054, 2003, 102]",
    "stop_token_id: 50256",
    "tokens_per_second=182.4 ttft=0.31",
    "csrf token mismatch (419)",
    "Unexpected token '<' at line 12 col 40",
    "SyntaxError: invalid token 0777",
    "the API key page is at https://example.com/settings/keys",
    "API keys start with sk- and have 48 characters",
    "Set OPENAI_API_KEY in .env before you run step 2",
    "OPENAI_API_KEY=sk-...",
    'api_key=os.getenv("API_KEY_2")',
    "apiKey: process.env.MAPS_API_KEY_V2,",
    "secret: { secretName: db-creds-v2 }",
    "SECRET_LENGTH = 32",
    "client_secret_post is the auth method",
    "secret/data/app2/config#password",
    "arn:aws:secretsmanager:eu-west-1:⟪digits:12⟫:secret:prod/db-AbC12d",
    "projects/p1/secrets/db-password/versions/3",
    "keyring: login-keychain-db (3 items)",
    "Key: F12 opens the dev tools",
    "keys 1-9 switch tabs, key 0 resets",
    "sort by key2 desc, then key10",
    'cache_key = f"user:{user_id}:v2"',
    "s3 key: exports/2026/01/report-v2.csv",
    "row_key=⟪hex:32⟫",
    "hostkey: ssh-ed25519 256 SHA256:⟪b64:43⟫",
    "known_hosts: |1|⟪b64:27⟫=|⟪b64:27⟫= ssh-rsa",
    "auth.log:Jan  4 12:00:01 web-02 sshd[4121]: Accepted publickey for ops",
    "auth=none, port 8443, TLSv1.3",
    "author: maria2024, reviewed by tom_77",
    "login shell: /bin/zsh-5.9",
    "login took 182ms on web-02",
    "admin@example.com opened PR #421",
    "root partition 82% full on sda2",
    "connect(host='db-01', port=5432, timeout=10)",
    "verify(checksum='⟪hex:64⟫')",
    "encrypt('AES-256-GCM', data)",
    "tar -C /opt -xzf node-v20.11.1.tar.gz",
    "pytest -k test_login2 -p no:cacheprovider",
    "docker compose -p shop2 up -d",
    "scp -P 2222 file2.txt ops@host-01:/tmp",
    "curl -s -w '%{http_code}' https://example.com/v2/health",
    "License: MIT, serial killers are a TV topic",
    "Serial port: /dev/ttyUSB0 at 115200 baud",
    "Invoice 2026-000123, customer no. 4711-0815",
    "seed=42 for all runs, words per line 12",
    "the seed words come from a list of two thousand and forty eight",
    "wallet balance: 0.0042 BTC",
    "recovery took 12 minutes and all of the nodes came back",
    "2FA is enabled for 12 of 14 users",
    "webhook delivered in 120 ms to https://example.com/hooks/github",
    "session 20260104-1201 restored from disk",
    "color: #A1b2C3; background: url(img/bg-2@2x.png)",
)
