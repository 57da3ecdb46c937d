"""What is an instruction to the agent that stands, and what only looks like one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.conversations import texts

from penstock.writing import constraints
from penstock.writing.constraints import find_constraints, is_constraint, sentences

STANDING = [
    # Bans and commands by adverb.
    "Never touch the migrations folder.",
    "Please don't change the public API.",
    "Do not commit to main.",
    "DO NOT edit generated files!",
    "Always run the linter before you push.",
    "Only edit files under src/.",
    "Don't forget to update the changelog.",
    "Stop adding comments to every line.",
    "Under no circumstances delete the backup.",
    "No new dependencies.",
    "No emojis in commit messages, please.",
    # Verbs that tell how to work.
    "Use tabs, not spaces.",
    "please use the British spelling",
    "Keep the function names as they are.",
    "Avoid global state.",
    "Make sure all tests pass on Windows.",
    "Ensure that nothing is logged twice.",
    "Leave the config alone.",
    "Stick to the standard library.",
    "Follow the style of the existing tests.",
    "Prefer small commits.",
    "Answer in French.",
    "Write all docstrings in English.",
    "Ask me before deleting anything.",
    "Wait for my approval before booking.",
    "Be careful with the production database.",
    "Treat every warning as an error.",
    # Single deeds with a scope.
    "Run make lint before every commit.",
    "From now on, reply with the diff only.",
    "Whenever you add a route, update the docs.",
    "Ask for confirmation before each payment.",
    "Commit after every step.",
    "Return only the JSON.",
    # Second person and obligation.
    "You must run the linter first.",
    "You should not use mocks here.",
    "You are not allowed to push.",
    "You can only use the staging key.",
    "You need to keep the old signature.",
    "All tests must pass.",
    "The endpoint must not return more than 50 rows.",
    "Secrets may not be logged.",
    "Passwords should never be stored in plain text.",
    "Force pushes are forbidden.",
    "Required before every commit: make check.",
    "I want you to always show the command first.",
    "I'd prefer the cheaper option.",
    "I don't want you to touch the schema.",
    "We must keep backward compatibility.",
    "Could you always include the ticket number?",
    "Fix the parser, but don't touch the lexer.",
    "Rules: never use eval.",
    "Step 4: never drop the old table.",
    # Other languages.
    "Benutze niemals Tabs.",
    "Du darfst die Datenbank nicht ändern.",
    "Bitte keine neuen Abhängigkeiten.",
    "Verwende immer die Testumgebung.",
    "Ändern Sie nicht die Schnittstelle.",
    "Die Schnittstelle darf nicht geändert werden.",
    "Vor jedem Commit die Tests laufen lassen.",
    "Ne modifie jamais ce fichier.",
    "Il faut garder les noms actuels.",
    "Utilise toujours le serveur de test.",
    "Vous devez répondre en français.",
    "Nunca borres los datos.",
    "No toques la rama principal.",
    "Y por favor no me llame por teléfono, solo correo.",
    "Espere, no lo cancele.",
    "母は膝が悪いので階段の多い場所は避けてください。",
    "Usa siempre el entorno de pruebas.",
    "Debes pedir permiso antes de borrar.",
    "Não altere o arquivo de produção.",
    "Use sempre o ambiente de testes.",
    "Você deve responder em português.",
    "Non modificare lo schema.",
    "Usa sempre i nomi attuali.",
    "Devi chiedere prima di cancellare.",
    "Raak de database nooit aan.",
    "Gebruik alleen de testserver.",
    "Rör aldrig produktionsdatabasen.",
    "Никогда не удаляй таблицу.",
    "Нельзя трогать прод.",
    "Используй только тестовый сервер.",
    "Ты должен отвечать по-русски.",
    "Ніколи не змінюй схему.",
    "Nigdy nie zmieniaj schematu.",
    "Zawsze używaj środowiska testowego.",
    "Asla üretim veritabanını değiştirme.",
    "Jangan ubah skema basis data.",
    "Đừng sửa tệp cấu hình.",
    "另外爸爸对花生过敏，推荐餐厅的时候注意。",
    "提交之前先跑测试。",
    "记得每次都用中文回答。",
    "لكن لا تلغوا باقي الطلب.",
    "ولا تتصلوا بي هاتفيا، فقط بالبريد.",
    "من فضلك لا ترسل أي شيء قبل أن أوافق.",
    "رجاءً استخدم العربية فقط.",
    "敬語で答えてください。",
    "Цены указывай без НДС.",
    "Onayım olmadan hiçbir şey gönderme.",
    "हमेशा हिंदी में जवाब देना।",
    "ואל תתקשרו אליי, רק מייל.",
    "به پوشه migrations دست نزن.",
    "همیشه به فارسی جواب بده.",
    "E non chiamatemi, solo email.",
    "Maar annuleer de rest van de bestelling niet.",
    "Svara alltid på svenska.",
    "Men avboka inte resten.",
    "Nhưng đừng hủy phần còn lại.",
    "Tapi jangan batalkan sisanya.",
    "อย่าแตะโฟลเดอร์ migrations",
    "ห้ามส่งอีเมลโดยไม่ถาม",
    "Μην αγγίζεις τον φάκελο migrations.",
    "Πάντα απάντα στα ελληνικά.",
    "Ne nyúlj a migrations mappához.",
    "Mindig magyarul válaszolj.",
    "Älä koske migrations-kansioon.",
    "Vastaa aina suomeksi.",
    "Nu atinge folderul migrations.",
    "Răspunde mereu în română.",
    "لا تغير قاعدة البيانات.",
    "不要修改生产配置。",
    "必须先运行测试。",
    "请始终使用中文回答。",
    "只能修改 src 目录下的文件。",
    "每次提交前都要运行测试。",
    "本番環境は絶対に変更しないでください。",
    "必ずテストを先に実行してください。",
    "コメントは英語で書くこと。",
    "항상 테스트를 먼저 실행하세요.",
    "운영 데이터베이스는 건드리지 마세요.",
]

NOT_STANDING = [
    "谢谢你的注意。",
    "我注意到一个错误。",
    "他前先生打过电话。",
    "لا توجد مشكلة.",
    "طلبي لم يصل بعد.",
    "لا تعمل الصفحة.",
    "نمی‌دانم.",
    "شماره سفارش ندارم.",
    "ไม่มีหมายเลข",
    "อย่างนี้ก็ได้",
    "Δεν έχω τον αριθμό.",
    "Μην ανησυχείς.",
    "En tiedä.",
    "Nem tudom.",
    "Nincs meg a szám.",
    "Nu știu.",
    "Nu funcționează.",
    "Jag vet inte.",
    "Non lo so.",
    "Dan heeft gebeld.",
    # Statements of the speaker.
    "I don't have the order number handy.",
    "I can't log in.",
    "I'd rather not.",
    "I'd rather not share my email.",
    "I cannot find the receipt.",
    "I need a refund for two items.",
    "I must leave at noon.",
    "I never ordered that.",
    "I only have ten minutes.",
    "I always get this error.",
    "I don't want it anymore.",
    "I haven't received anything yet.",
    "We don't know why it fails.",
    "We can't reproduce it here.",
    "My account should be under my maiden name.",
    "Don't have it with me, sorry.",
    "Never received it.",
    "Don't know, maybe last week.",
    # Statements about things.
    "It never works on Mondays.",
    "The job always fails at midnight.",
    "The build cannot find the header.",
    "There must be a mistake in my bill.",
    "It must have been the cache.",
    "This should not take so long.",
    "The button does not do anything.",
    "There are only two seats left.",
    "Only the blue one is broken.",
    "They keep charging me twice.",
    "He said he would never pay.",
    "The tests pass without the flag.",
    "No changes needed.",
    "No idea.",
    "No problem at all.",
    "No, thanks.",
    "Nothing else for today.",
    # Requests: the task itself.
    "Fix the bug in the parser.",
    "Please cancel my order.",
    "Add a test for the retry.",
    "Explain how the cache works.",
    "Write a function that returns only even numbers.",
    "Run the tests.",
    "Show me the last commit.",
    "Rename it to parse_date.",
    "Go ahead.",
    "Let's start with the login page.",
    "I want you to fix the login page.",
    "I'd like to return the lamp.",
    "Can you check the status?",
    "continue",
    # Questions.
    "What is in a.py?",
    "Why does it never stop?",
    "Should I always use the flag?",
    "Do we only support Linux?",
    "Can I keep the old one?",
    "Must it be JSON?",
    # Talk.
    "Thank you!",
    "Looks good to me.",
    "Never mind.",
    "Don't worry about it.",
    "Sounds good, thanks.",
    "Every time I open it, it crashes.",
    "Whenever I click, nothing happens.",
    # Other languages.
    "Ich habe die Nummer nicht.",
    "Das funktioniert nicht.",
    "Es geht immer noch nicht.",
    "Ich kann mich nicht anmelden.",
    "Behebe den Fehler im Parser.",
    "Weiter.",
    "Je ne sais pas.",
    "Ça ne marche pas.",
    "Corrige le bug.",
    "No tengo el número.",
    "No funciona.",
    "Nunca recibí el paquete.",
    "¿Por qué no funciona?",
    "Não funciona.",
    "Eu não tenho o número.",
    "Non funziona.",
    "Non ho il numero.",
    "Het werkt niet.",
    "Ik heb het nummer niet.",
    "Я не могу войти.",
    "Не работает.",
    "Я никогда не заказывал это.",
    "Исправь ошибку.",
    "Nie działa.",
    "Nie mam numeru.",
    "Çalışmıyor.",
    "我没有订单号。",
    "我不要这个了。",
    "要不要重启？",
    "修复这个错误。",
    "继续",
    "注文番号がわかりません。",
    "バグを直してください。",
    "주문 번호가 없어요.",
    "버그를 고쳐 주세요.",
]


@pytest.mark.parametrize("sentence", STANDING)
def test_an_instruction_that_stands_is_a_constraint(sentence):
    assert is_constraint(sentence)


@pytest.mark.parametrize("sentence", NOT_STANDING)
def test_statements_requests_questions_and_talk_are_none(sentence):
    assert not is_constraint(sentence)


def test_they_are_found_word_for_word_without_their_bullets():
    text = (
        "Fix a.py, thanks.\n- never use tabs\n2. Always run make lint.\nI don't own b.py. Keep it as it is!"
    )
    assert find_constraints(text) == ["never use tabs", "Always run make lint.", "Keep it as it is!"]


def test_a_line_that_only_leads_to_others_is_none():
    assert find_constraints("Use this when:\n- it rains") == []


def test_code_and_data_are_none():
    assert find_constraints('{"note": "never use this"}\nfunc limit(n int) {\n| must | always |') == []


@given(texts(max_size=200))
def test_whatever_is_found_stands_in_the_text(text):
    assert all(one in text for one in find_constraints(text))


class TestAlone:
    """A constraint that points back is kept with what it points to, and a statement is none."""

    def test_an_instruction_that_points_back_comes_with_the_sentence_before(self):
        text = "If line 583 is far away, don't scroll down many times. Instead, use the goto command."
        assert find_constraints(text) == [text]

    def test_where_there_is_none_before_it_stands_alone(self):
        assert find_constraints("Otherwise, always ask me first.") == ["Otherwise, always ask me first."]

    @pytest.mark.parametrize(
        "statement",
        [
            "No mutex protects it.",
            "No lock guards the cache.",
            "No global state.",
            "In the batch loop each iteration fetches a reader but never defers its close.",
            "The worker never closes the socket.",
        ],
    )
    def test_a_finding_in_a_review_is_none(self, statement):
        review = f"## Review\n\n**1. Leak** (`sync.py:12`): {statement}\n\n- `a.py:3` is fine\n- `b.py:4` as well\n"
        assert find_constraints(review) == []

    def test_what_a_program_printed_is_none(self):
        printed = "It stops here:\n=== Step 3 ===\n✓ hooks installed\n[main 1a2b3c4] first\n12:01 start\n"
        printed += '"agents": 1,\n=== Step 4 ===\nNo initial_attribution in metadata\nNo hooks in place'
        assert find_constraints(printed) == []
        assert find_constraints(printed + "\nNever run it as root.") == ["Never run it as root."]

    @pytest.mark.parametrize("ban", ["No new dependencies.", "No emojis in commits, please.", "no tabs"])
    def test_a_ban_stays_one(self, ban):
        assert find_constraints(f"Fix the parser. {ban}") == [ban]


SHORT_WORDS = [
    "no",
    "do",
    "it",
    "is",
    "be",
    "in",
    "at",
    "by",
    "we",
    "i",
    "je",
    "u",
    "du",
    "es",
    "il",
    "ne",
    "tu",
    "se",
    "a",
    "al",
    "y",
    "la",
    "le",
    "en",
    "on",
    "so",
    "1",
    "-",
    "'d",
    "n'y",
    "c:\\a",
]
SHORT_CLAUSES = st.lists(st.sampled_from(SHORT_WORDS), max_size=9).map(" ".join)


@given(clause=SHORT_CLAUSES)
def test_no_form_of_an_instruction_is_made_of_short_words_alone(clause: str):
    """`_HAS_WORD` turns such clauses away before any other pattern looks at them."""
    for form in (constraints._ENGLISH, constraints._BEGINNINGS):
        assert constraints._compile(form).match(clause) is None
    assert constraints._OBLIGATION.search(clause) is None
    assert constraints._ANYWHERE.search(clause) is None


def test_a_mark_within_code_ends_no_sentence():
    text = "It did not skip the `# service=...` line. Is it `a?` or `b`? Run `make all.` Then stop."
    assert sentences(text) == [
        "It did not skip the `# service=...` line.",
        "Is it `a?` or `b`?",
        "Run `make all.",
        "Then stop.",
    ]


def test_a_sentence_that_is_said_again_is_found_again():
    assert find_constraints("Never push.\nDone.\nNever push.") == ["Never push.", "Never push."]
