# cmake -D INPUT=file -D OUTPUT=file -P embed.cmake: writes a file's bytes as the elements of a C array.
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUTPUT} "${bytes}\n")
