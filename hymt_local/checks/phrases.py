"""What language models say about a translation instead of giving it."""

from __future__ import annotations

TRANSLATION_WORDS = (
    *(
        "translation",
        "translated text",
        "traduction",
        "tradução",
        "traducción",
        "çeviri",
        "перевод",
        "الترجمة",
        "ترجمة",
    ),
    *(
        "翻译结果",
        "翻译",
        "译文",
        "翻譯結果",
        "翻譯",
        "譯文",
        "翻訳",
        "訳文",
        "번역",
        "번역문",
        "คำแปล",
        "การแปล",
        "traduzione",
    ),
    *("übersetzung", "bản dịch", "terjemahan", "salin", "pagsasalin", "अनुवाद", "tłumaczenie", "překlad", "vertaling"),
    *("ការបកប្រែ", "ဘာသာပြန်", "ترجمه", "અનુવાદ", "ترجمہ", "అనువాదం", "भाषांतर", "תרגום", "অনুবাদ", "மொழிபெயர்ப்பு", "переклад"),
    *("སྒྱུར་བཅོས", "ཡིག་སྒྱུར", "аударма", "орчуулга", "تەرجىمە", "تەرجىمىسى"),
)
NOTE_WORDS = (
    *(
        "translator's note",
        "note",
        "notes",
        "explanation",
        "remarque",
        "explication",
        "nota",
        "observação",
        "explicação",
    ),
    *(
        "explicación",
        "açıklama",
        "примечание",
        "пояснение",
        "ملاحظة",
        "译者注",
        "注释",
        "注",
        "备注",
        "说明",
        "解释",
        "譯者註",
    ),
    *(
        "註",
        "備註",
        "說明",
        "補足",
        "備考",
        "訳注",
        "참고",
        "설명",
        "หมายเหตุ",
        "คำอธิบาย",
        "spiegazione",
        "hinweis",
        "anmerkung",
    ),
    *(
        "erklärung",
        "ghi chú",
        "lưu ý",
        "giải thích",
        "penjelasan",
        "catatan",
        "tala",
        "paalala",
        "paliwanag",
        "टिप्पणी",
        "uwaga",
    ),
    *(
        "wyjaśnienie",
        "poznámka",
        "vysvětlení",
        "opmerking",
        "uitleg",
        "ចំណាំ",
        "မှတ်ချက်",
        "یادداشت",
        "توضیح",
        "નોંધ",
        "وضاحت",
    ),
    *("గమనిక", "टीप", "הערה", "הסבר", "দ্রষ্টব্য", "குறிப்பு", "примітка", "пояснення", "མཆན", "ескерту", "түсініктеме"),
    *("тэмдэглэл", "тайлбар", "ئىزاھات", "ئەسكەرتىش"),
)
PREFACES = (
    r"(?:sure|certainly|of course|okay|ok)[,!.]?\s+(?:here|below|the|i)\b[^\n:：]{0,80}[:：]",
    r"(?:here(?:'s|’s| is| are)|below is|this is|the following is)\b[^\n:：]{0,40}\btranslat[^\n:：]{0,40}[:：]",
    r"the (?:[a-z ]{0,20})?translat(?:ion|ed)[^\n:：]{0,60}(?: is|:|：)",
    r"(?:好的|当然|當然|没问题)?[，,。！!]?\s{0,9}(?:以下|下面|这)是[^\n:：]{0,30}(?:翻译|译文|翻譯|譯文)[^\n:：]{0,20}[:：]",
    r"(?:voici|aquí (?:está|tienes)|aqui está|hier ist|ecco|вот|هذه هي|以下は)[^\n:：]{0,40}"
    r"(?:tradu|übersetz|перевод|ترجم|翻訳)[^\n:：]{0,40}[:：]",
)
"""Regular expressions of what stands before a translation, lower case."""
PROMPT_PARTS = (
    *("without additional explanation", "without any additional explanation", "only output the translated result"),
    *(
        "only output the refined translation",
        "translate the following segment into",
        "translate the following text into",
    ),
    *(
        "exact same number of delimiters",
        "reference the following translations",
        "strictly conform to [",
        "[source text]",
    ),
    *(
        "[translation tasks]",
        "[background information]",
        "### strict rules",
        "### source data",
        "user-facing text within",
    ),
    *(
        "不要额外解释",
        "注意只需要输出翻译后的结果",
        "把下面的文本翻译成",
        "将以下文本翻译为",
        "将以下<source>",
        "参考下面的翻译",
        "参考上面的信息",
    ),
    *(
        "【待翻译文本】",
        "【翻译任务】",
        "【背景信息】",
        "保留等量的分隔符",
        "# 严格约束",
        "# 数据输入",
        "翻译的风格要严格符合",
    ),
    *("<source>", "</source>", "<target>", "</target>"),
)
"""Parts of the prompt templates of every model generation, lower case."""
REFUSALS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        r"(?:i'm|i’m|i am) (?:sorry|unable)\b.{0,40}\b(?:can't|can’t|cannot|unable|not able)|\bas an ai\b"
        r"|i (?:can't|can’t|cannot) (?:help|assist|translate|provide)"
        r"|please provide the (?:text|sentence|source|content)",
        ("en",),
    ),
    (
        r"作为一?个?(?:人工智能|ai|语言模型)|(?:抱歉|对不起).{0,10}(?:无法|不能)|请提供.{0,10}(?:文本|内容|原文)",
        ("zh",),
    ),
    (r"(?:désolé|navré).{0,30}ne (?:peux|puis) pas", ("fr",)),
    (r"lo siento.{0,30}no puedo", ("es",)),
    (r"(?:tut mir leid|entschuldigung).{0,30}kann.{0,20}nicht", ("de",)),
    (r"申し訳.{0,20}(?:できません|お手伝い)", ("ja",)),
)
"""What models say instead of answering, lower case, and the language of it."""
