"""The sixth list: what an agent meets in settings, shells, code, logs and mail, written before its first run.

The templates are those of `blind_secrets`; docs/adr/0003-redaction.md has the figures of the first run.
"""

import random

from tests.strategies.blind_secrets import BlindSecret, fill_template

__all__ = ["make_sixth_look_alikes", "make_sixth_secrets"]


def make_sixth_secrets(seed: int) -> list[BlindSecret]:
    """Returns 159 texts of 40 kinds."""
    rng = random.Random(seed)
    return [
        BlindSecret(kind, *fill_template(template, rng))
        for kind, templates in _SECRETS.items()
        for template in templates
    ]


def make_sixth_look_alikes(seed: int) -> list[str]:
    """Returns 80 texts without a secret."""
    rng = random.Random(seed)
    return [fill_template(template, rng)[0] for template in _LOOK_ALIKES]


_SECRETS: dict[str, tuple[str, ...]] = {
    "terraform": (
        'variable "db_password" {\n  type    = string\n  default = "⟦strong⟧"\n}',
        'resource "aws_db_instance" "main" {\n  username = "admin"\n  password = "⟦pw⟧"\n}',
        'terraform apply -var="grafana_admin_password=⟦marked⟧" -auto-approve',
        'master_auth_token = "⟦url:32⟧" # rotated in March',
    ),
    "kubernetes": (
        "apiVersion: v1\nkind: Secret\nstringData:\n  username: app\n  password: ⟦leet⟧\n",
        "kubectl create secret generic db --from-literal=username=app --from-literal=password=⟦camel⟧",
        "kubectl create secret docker-registry regcred --docker-username=ci --docker-password=⟦alnum:24⟧",
        "        - name: RABBITMQ_DEFAULT_PASS\n          value: ⟦marked⟧\n",
    ),
    "helm": (
        "helm upgrade --install pg bitnami/postgresql --set auth.postgresPassword=⟦drawn⟧",
        "auth:\n  enabled: true\n  rootPassword: ⟦strong⟧\n  replicationPassword: ⟦drawn⟧\n",
        "helm install keycloak . --set-string adminPassword='⟦leet⟧'",
    ),
    "ansible": (
        "ansible_become_pass: ⟦pw⟧",
        "web01 ansible_host=10.0.4.7 ansible_user=deploy ansible_ssh_pass=⟦marked⟧",
        "- name: create user\n  mysql_user:\n    name: shop\n    password: '⟦camel⟧'\n    priv: 'shop.*:ALL'\n",
    ),
    "docker": (
        "docker run -d -e MYSQL_ROOT_PASSWORD=⟦pw⟧ -p 3306:3306 mysql:8",
        "    environment:\n      - MINIO_ROOT_USER=minio\n      - MINIO_ROOT_PASSWORD=⟦drawn⟧\n",
        "docker login registry.example.com -u ci-bot -p ⟦alnum:28⟧",
        "RUN npm config set //registry.example.com/:_authToken ⟦hex:36⟧",
    ),
    "pipelines": (
        "gh secret set DEPLOY_KEY --body '⟦url:40⟧'",
        "env:\n  SONAR_TOKEN: ⟦hex:40⟧\n  NODE_VERSION: 20\n",
        'variables:\n  SSH_PASSWORD: "⟦leet⟧"\n  RETRIES: 3\n',
        "+ export CODECOV_TOKEN=⟦hex:32⟧\n+ ./upload.sh",
    ),
    "dot files": (
        "machine api.example.com\n  login deploy\n  password ⟦alnum:20⟧\n",
        "db.internal:5432:orders:app:⟦pw⟧",
        "[client]\nuser=root\npassword=⟦marked⟧\n",
        "[pypi]\nusername = __token__\npassword = pypi-AgEIcHlwaS5vcmc⟦url:60⟧\n",
        "//npm.example.com/:_password=⟦alnum:24⟧",
    ),
    "shell history": (
        "mysqldump -u root -p'⟦strong⟧' shop > shop.sql",
        "sshpass -p ⟦leet⟧ ssh deploy@10.2.0.14 uptime",
        "PGPASSWORD=⟦pw⟧ psql -h db.internal -U app -c 'select 1'",
        "redis-cli -h cache.internal -a ⟦drawn⟧ ping",
        "mongosh --host mongo1 -u root -p ⟦camel⟧ --authenticationDatabase admin",
    ),
    "headers": (
        "> GET /v2/orders HTTP/1.1\n> Host: api.example.com\n> X-Api-Key: ⟦alnum:32⟧\n> Accept: */*",
        "Authorization: Token ⟦hex:40⟧",
        "Proxy-Authorization: Basic ⟦basic⟧",
        "Set-Cookie: sessionid=⟦lower:32⟧; HttpOnly; Path=/; SameSite=Lax",
        "X-Auth-Token: ⟦url:48⟧",
    ),
    "curl and friends": (
        "curl -u deploy:⟦pw⟧ https://artifacts.example.com/repo/app.jar -O",
        "wget --user=ci --password=⟦marked⟧ https://files.example.com/build.zip",
        "http -a admin:⟦leet⟧ POST :8080/api/users name=bob",
        "curl https://api.example.com/me -H 'PRIVATE-TOKEN: ⟦url:26⟧'",
    ),
    "query of an address": (
        "GET https://maps.example.com/geocode?address=Berlin&key=⟦alnum:39⟧ 200 31ms",
        "https://hooks.example.com/run?job=nightly&access_token=⟦hex:40⟧",
        "https://app.example.com/reset?email=bob%40example.com&reset_token=⟦url:43⟧",
        "wss://stream.example.com/v1?apikey=⟦alnum:32⟧&symbols=ABC",
    ),
    "signed addresses": (
        "https://acc.blob.core.windows.net/backup/db.bak?sv=2023-08-03&sp=r&se=2027-01-01&sr=b&sig=⟦alnum:43⟧%3D",
        "https://bucket.s3.amazonaws.com/a.csv?X-Amz-Expires=3600&X-Amz-Signature=⟦hex:64⟧",
        "https://storage.googleapis.com/b/o.zip?GoogleAccessId=svc&Expires=1893456000&Signature=⟦alnum:86⟧",
    ),
    "database addresses": (
        "DATABASE_URL=postgresql+asyncpg://orders:⟦strong⟧@db.internal:5432/orders",
        "amqps://worker:⟦pw⟧@mq.example.com:5671/prod",
        "mongodb+srv://app:⟦alnum:22⟧@cluster0.abcde.mongodb.net/?retryWrites=true",
        "redis://:⟦drawn⟧@cache:6379/2",
    ),
    "connection strings": (
        "Server=tcp:sql.example.com,1433;Database=crm;User ID=crm;Password=⟦marked⟧;Encrypt=True;",
        "jdbc:mysql://db:3306/app?user=app&password=⟦drawn⟧&useSSL=true",
        "DefaultEndpointsProtocol=https;AccountName=shopdata;AccountKey=⟦b64:86⟧==;EndpointSuffix=core.windows.net",
        "Endpoint=sb://bus.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=⟦b64:43⟧=",
    ),
    "python": (
        'client = boto3.client("s3", aws_access_key_id=KEY, aws_secret_access_key="⟦b64:40⟧")',
        'r = requests.get(url, auth=("svc-report", "⟦pw⟧"), timeout=10)',
        'os.environ["OPENWEATHER_API_KEY"] = "⟦hex:32⟧"',
        'conn = psycopg.connect(host="db", user="etl", password="⟦leet⟧", dbname="dw")',
        'app.config["SECRET_KEY"] = b"⟦alnum:24⟧"',
    ),
    "javascript": (
        "const token = jwt.sign({ sub: user.id }, '⟦strong⟧', { expiresIn: '1h' })",
        'const pool = new Pool({ user: "app", host: "db", password: "⟦camel⟧", port: 5432 })',
        "axios.defaults.headers.common['Authorization'] = `Bearer ⟦url:64⟧`",
        "firebase.initializeApp({ apiKey: 'AIza⟦url:35⟧', projectId: 'shop' })",
    ),
    "java": (
        "spring.datasource.password=⟦marked⟧",
        "jasypt.encryptor.password: ⟦pw⟧",
        'private static final String API_SECRET = "⟦alnum:40⟧";',
        'keyStore.load(in, "⟦leet⟧".toCharArray()); // keystore password',
    ),
    "dotnet": (
        '{ "ConnectionStrings": { "Default": "Data Source=sql;Initial Catalog=crm;User Id=sa;Password=⟦leet⟧" } }',
        '{"Jwt": {"Issuer": "shop", "SigningKey": "⟦strong⟧"}}',
        '<add key="SmtpPassword" value="⟦camel⟧" />',
    ),
    "php": (
        "define( 'DB_PASSWORD', '⟦pw⟧' );",
        "APP_KEY=base64:⟦b64:43⟧=",
        "define('AUTH_KEY',         '⟦strong⟧');",
        "$mysqli = new mysqli('localhost', 'shop', '⟦drawn⟧', 'shop');",
    ),
    "ruby": (
        "production:\n  adapter: postgresql\n  username: app\n  password: <%= '⟦marked⟧' %>\n",
        "secret_key_base: ⟦hex:128⟧",
        "$ cat config/master.key\n⟦hex:32⟧",
    ),
    "go and rust": (
        'cfg := Config{User: "svc", Password: "⟦drawn⟧", TLS: true}',
        'const SIGNING_SECRET: &str = "⟦alnum:32⟧";',
        'req.SetBasicAuth("deploy", "⟦leet⟧")',
    ),
    "said in English": (
        "You can log in as admin with the password ⟦pw⟧, please change it afterwards.",
        "my pw for the staging box is ⟦short⟧",
        "Creds for the demo: demo / ⟦leet⟧",
        "The API key you asked for is ⟦alnum:32⟧ — don't share it.",
        "wifi is GuestNet, pass ⟦camel⟧",
    ),
    "said in other languages": (
        "Le mot de passe du compte de test est ⟦pw⟧.",
        "A senha do banco é ⟦leet⟧, não compartilhe.",
        "Hasło do panelu: ⟦camel⟧",
        "パスワードは ⟦drawn⟧ です",
        "Het wachtwoord is ⟦marked⟧",
        "Şifre: ⟦pw⟧",
    ),
    "tables": (
        "| host | user | password |\n|---|---|---|\n| db1 | root | ⟦leet⟧ |\n| db2 | root | ⟦pw⟧ |",
        "email,name,temp_password\nann@example.com,Ann,⟦drawn⟧\nbob@example.com,Bob,⟦camel⟧\n",
        "Service\tLogin\tPasswort\nJira\tadmin\t⟦marked⟧\n",
    ),
    "sql": (
        "CREATE USER 'report'@'%' IDENTIFIED BY '⟦pw⟧';",
        "ALTER ROLE app WITH LOGIN PASSWORD '⟦strong⟧';",
        "INSERT INTO users (email, password) VALUES ('ann@example.com', '⟦leet⟧');",
        "CREATE USER MAPPING FOR app SERVER dw OPTIONS (user 'etl', password '⟦drawn⟧');",
    ),
    "forges": (
        "remote: https://x-access-token:ghs_⟦alnum:36⟧@github.com/acme/shop.git",
        "git clone https://oauth2:glpat-⟦url:20⟧@gitlab.example.com/acme/shop.git",
        "github_pat_⟦alnum:22⟧_⟦alnum:59⟧",
        "ATATT3xFfGF0⟦url:170⟧=⟦HEX:8⟧",
    ),
    "models": (
        "OPENAI_API_KEY=sk-proj-⟦url:74⟧T3BlbkFJ⟦url:74⟧",
        "using key sk-ant-api03-⟦url:93⟧AA",
        "huggingface-cli login --token hf_⟦alnum:34⟧",
        "GROQ: gsk_⟦alnum:52⟧",
        "replicate r8_⟦alnum:37⟧",
    ),
    "payments": (
        "stripe listen --api-key sk_live_⟦alnum:99⟧",
        "webhook signing secret whsec_⟦alnum:32⟧",
        "access token EAAAl⟦url:59⟧ (Square, production)",
    ),
    "mail and messages": (
        "SG.⟦url:22⟧.⟦url:43⟧",
        "mailchimp: ⟦hex:32⟧-us14",
        "curl -X POST https://hooks.slack.com/services/T⟪upper:8⟫/B⟪upper:8⟫/⟦alnum:24⟧",
        "xoxb-⟪digits:12⟫-⟪digits:12⟫-⟦alnum:24⟧",
        "https://discord.com/api/webhooks/⟪digits:18⟫/⟦url:68⟧",
    ),
    "monitoring": (
        "DD_API_KEY=⟦hex:32⟧",
        "license_key: eu01xx⟦hex:34⟧NRAL",
        "glsa_⟦alnum:32⟧_⟦hex:8⟧",
    ),
    "clouds": (
        "aws_access_key_id = AKIA⟪base32:16⟫\naws_secret_access_key = ⟦b64:40⟧",
        "doctl auth init -t dop_v1_⟦hex:64⟧",
        "export CLOUDFLARE_API_TOKEN=⟦url:40⟧",
        '"private_key_id": "⟪hex:40⟫", "client_secret": "GOCSPX-⟦url:28⟧"',
    ),
    "tools of developers": (
        "npm_⟦alnum:36⟧",
        "dckr_pat_⟦url:27⟧",
        "lin_api_⟦alnum:40⟧",
        "figd_⟦url:40⟧",
        "dapi⟦hex:32⟧",
        "hvs.CAESI⟦url:90⟧",
        "tskey-auth-k⟪alnum:11⟫CNTRL-⟦alnum:32⟧",
    ),
    "key files": (
        "-----BEGIN EC PRIVATE KEY-----\n⟦pem⟧\n-----END EC PRIVATE KEY-----",
        "[Interface]\nPrivateKey = ⟦b64:43⟧=\nAddress = 10.8.0.2/24",
        "AGE-SECRET-KEY-1⟦bech:58⟧",
    ),
    "tokens of a login": (
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiI0Mi⟦url:40⟧.⟦url:43⟧",
        '{"access_token":"⟦url:120⟧","token_type":"bearer","expires_in":3600,"refresh_token":"⟦url:60⟧"}',
        "client_id=web&client_secret=⟦url:40⟧&grant_type=client_credentials",
        "saved refresh token: 1//0⟦url:60⟧",
    ),
    "networks": (
        'network={\n  ssid="Office"\n  psk="⟦pw⟧"\n}',
        "access-points:\n  HomeNet:\n    password: ⟦leet⟧\n",
        "enable secret ⟦camel⟧",
        "snmp-server community ⟦drawn⟧ RO",
    ),
    "directories and shares": (
        "bindpw ⟦marked⟧",
        "ldapsearch -x -D cn=admin,dc=example,dc=org -w ⟦pw⟧ -b dc=example,dc=org",
        "mount -t cifs //nas/share /mnt -o username=backup,password=⟦leet⟧,uid=1000",
        "net use Z: \\\\nas\\share /user:CORP\\bob ⟦camel⟧",
    ),
    "windows": (
        'ConvertTo-SecureString "⟦leet⟧" -AsPlainText -Force',
        "cmdkey /add:fileserver /user:bob /pass:⟦marked⟧",
        'setx AZURE_CLIENT_SECRET "⟦alnum:34⟧"',
        "schtasks /create /tn backup /ru CORP\\svc /rp ⟦drawn⟧ /sc daily",
    ),
    "second factors": (
        "otpauth://totp/Shop:bob?secret=⟦base32:32⟧&issuer=Shop",
        "Backup codes for your account:\n⟦lower:5⟧-⟦lower:5⟧\n⟦lower:5⟧-⟦lower:5⟧",
        "Enter this setup key in your authenticator app: ⟦base32:16⟧",
    ),
    "wallets": (
        "seed phrase: ⟦mnemonic⟧",
        "PRIVATE_KEY=0x⟦hex:64⟧",
    ),
    "logs": (
        'DEBUG auth: login attempt {"user": "bob", "password": "⟦pw⟧", "ip": "10.1.1.9"}',
        "  File \"db.py\", line 14, in connect\n    password = '⟦leet⟧'\nOperationalError: no route to host",
        "POST /login username=bob&password=⟦drawn⟧&remember=1 -> 302",
        'level=debug msg="refreshing" token=⟦url:48⟧ tenant=acme',
    ),
}

_LOOK_ALIKES = (
    "commit ⟪hex:40⟫\nAuthor: Bob <bob@example.com>",
    "index ⟪hex:7⟫..⟪hex:7⟫ 100644",
    "sha256:⟪hex:64⟫  app.tar.gz",
    "image: registry.example.com/shop@sha256:⟪hex:64⟫",
    '"integrity": "sha512-⟪b64:86⟫=="',
    'ETag: W/"⟪hex:32⟫"',
    "traceparent: 00-⟪hex:32⟫-⟪hex:16⟫-01",
    "request_id=⟪hex:8⟫-⟪hex:4⟫-4⟪hex:3⟫-a⟪hex:3⟫-⟪hex:12⟫",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA⟪b64:43⟫ bob@laptop",
    "-----BEGIN CERTIFICATE-----\n⟪pem⟫\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\n⟪pem⟫\n-----END PUBLIC KEY-----",
    "fingerprint SHA256:⟪b64:43⟫ (ED25519)",
    "pod/checkout-api-⟪lower:9⟫-⟪lower:5⟫ 1/1 Running",
    "s3://logs-bucket/2026/11/18/⟪hex:32⟫.gz",
    "cache key: node-modules-linux-⟪hex:64⟫",
    "password = os.environ['DB_PASSWORD']",
    "password: ${DB_PASSWORD:?missing}",
    "api_key = settings.api_key or None",
    "token: ${{ secrets.GITHUB_TOKEN }}",
    "Authorization: Bearer <your-token>",
    "curl -H 'Authorization: Bearer $TOKEN' https://api.example.com",
    '-H "X-Api-Key: YOUR_API_KEY"',
    "password = getpass.getpass('Password: ')",
    "def check_password(self, password: str) -> bool:",
    "PASSWORD_MIN_LENGTH = 12",
    "password must contain at least 8 characters, one digit and one symbol",
    "Please enter your password to continue.",
    'error: password authentication failed for user "app"',
    "The secret to good tests is small functions.",
    "max_tokens: 4096, prompt_tokens: 1873, completion_tokens: 212",
    "token_count = len(tokenizer.encode(text))",
    "tokenizer.json: 2.1 MB, vocab_size 32000",
    "primary_key=True, foreign_key='orders.id'",
    "partition key: customer_id, sort key: created_at",
    "KeyError: 'refresh_interval_seconds'",
    "def next_token(stream: Iterator[str]) -> Token | None:",
    "if token.type == TokenType.IDENTIFIER:",
    "secret_name = 'projects/shop/secrets/db-password/versions/latest'",
    "valueFrom:\n  secretKeyRef:\n    name: shop-db\n    key: password",
    "vault kv get -field=password secret/shop/db",
    "aws secretsmanager get-secret-value --secret-id prod/shop/db",
    "password: !vault |",
    "password = var.db_password",
    'output "db_password" {\n  value     = random_password.db.result\n  sensitive = true\n}',
    "PGPASSWORD=$(cat /run/secrets/pg) psql -U app",
    "mysql -u root -p shop < dump.sql",
    "docker login -u ci --password-stdin registry.example.com",
    "ssh -i ~/.ssh/id_ed25519 deploy@10.0.0.4",
    "The token bucket refills at 10 per second.",
    "CSRF token missing or incorrect.",
    "Your session has expired; sign in again.",
    "label.password=Password\nlabel.forgot=Forgot your password?",
    '<input type="password" name="password" placeholder="Password" autocomplete="current-password">',
    '"password": {"type": "string", "minLength": 8, "format": "password"}',
    "password: str = Field(..., min_length=8)",
    "user.password_digest = bcrypt(password)",
    "assert response.json()['token'] is not None",
    "expect(screen.getByLabelText('Password')).toBeInTheDocument()",
    "git log --pretty=format:'%h %an %s' --author=token-bot",
    "drwxr-xr-x 2 root root 4096 Nov 18 01:44 secrets",
    "src/auth/password_reset.py:118: in send_reset_mail",
    "TODO: move password hashing to argon2id (ticket SHOP-4211)",
    "PASS src/components/Login.test.tsx (5.231 s)",
    "key=lambda row: (row.created_at, row.order_id)",
    "orders_2026_pkey PRIMARY KEY, btree (id)",
    "ENCRYPTION=AES256-GCM KEY_LENGTH=32",
    "JWT_ALGORITHM=RS256 JWT_TTL_SECONDS=3600",
    "TOKEN_ENDPOINT=https://login.example.com/oauth2/v2.0/token",
    "SECRET_SANTA_GROUP=finance-2026",
    "api-key-rotation.md was updated 3 days ago",
    "x-amz-request-id: ⟪upper:16⟫",
    "x-amz-id-2: ⟪b64:72⟫=",
    "arn:aws:iam::⟪digits:12⟫:role/deploy-⟪lower:8⟫",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA⟪b64:120⟫",
    "Order ⟪upper:10⟫ was shipped with tracking number 1Z⟪upper:16⟫",
    "model-00001-of-00004.safetensors ⟪hex:64⟫",
    "passwd:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin",
    "Das Passwort muss mindestens zwölf Zeichen haben.",
    "Le mot de passe doit être changé tous les 90 jours.",
    "passed=1842 failed=0 skipped=12 duration=83.4s",
)
